"""The flags of the text job."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from beam_jobs.cli.flags import flag, names_in
from beam_jobs.cli.inputs import COLUMN, FILES_TRIED, InputFlags, label_flag
from beam_jobs.errors import UsageError

if TYPE_CHECKING:
    from beam_jobs.jobs.job import Job
    from beam_jobs.jobs.text.text_job import TextJob
    from beam_jobs.jobs.text.text_reader import Tokens
    from beam_jobs.sources.inputs import Inputs
    from beam_jobs.sources.labels import Labels

# Kinds of tokens that are chosen by name; a tokenizer's file is chosen by its path.
_NAMED = ("none", "words", "bytes", "bpe")


def _check_tokens(tokens: str) -> None:
    if tokens not in _NAMED and not tokens.endswith(".json"):
        raise UsageError(
            f"--tokens {tokens}: expected {', '.join(_NAMED)} or a tokenizer's FILE.json"
        )


# Texts that are looked at before the job.
_TEXTS_TRIED = 20


@dataclass(frozen=True)
class TextFlags(InputFlags):
    """The flags of the text job."""

    title = "records"

    of_rows = ("path_column", "key")

    label: str = label_flag("none")
    record: Literal["line", "file"] = flag(
        "line", "line: a record is a line that is not blank; file: a whole text file of any kind"
    )
    text_field: str = flag(
        "text",
        "the field or column with the text, such as text or, for a field in an object, translations.de; several, "
        "such as question,answer, become features with these names",
        metavar="NAME,…",
        everyday=True,
    )
    label_field: str = flag(
        "",
        "the field or column with the label; lists give several labels",
        unset="no labels",
        excludes="label",
        everyday=True,
    )
    tokens: str = flag(
        "none",
        "words: ids in a vocabulary learned from the training split, like Keras TextVectorization; bytes: UTF-8 bytes "
        "+ 2; bpe: byte pairs learned from the training split; or a tokenizer.json of Hugging Face",
        metavar="none|words|bytes|bpe|FILE.json",
        check=_check_tokens,
        everyday=True,
    )
    vocabulary_size: int = flag(
        20_000,
        "number of token ids of words or bpe, with 0 (padding) and 1 (unknown)",
        least=3,
        needs="tokens",
    )
    max_length: int = flag(0, "most tokens to keep of a text", unset="all", least=0, needs="tokens")
    window: int = flag(
        0,
        "cut texts into records of N tokens; the last one may be shorter",
        unset="a text is a record",
        least=0,
        excludes="max_length",
        needs="tokens",
    )
    stride: int = flag(
        0,
        "tokens from the start of one window to the next, at most --window",
        unset="--window",
        least=0,
        needs="window",
    )
    drop_duplicates: bool = flag(
        False,
        "keep only the first of equal texts in the global order, and count the others",
        unset="keep all",
    )

    def validate(self) -> None:
        super().validate()
        if self.table and not self.path_column:
            if self.input:
                raise UsageError(
                    "--table holds the texts, so there is nothing to read from --input: drop it, or add --path_column"
                )
            if self.key != "path" and not self._key_column:
                raise UsageError(
                    f"--key {self.key}: texts in a table have keys of its path and row, or of column:NAME"
                )
        if self.delimiter and self.record == "file" and not (self.table and self.path_column):
            raise UsageError(
                f"--delimiter {self.delimiter}: --record file reads no columns: drop it"
            )
        self._check_text_fields()
        self._check_vocabulary_size()
        if self.stride > self.window:
            raise UsageError(
                f"--stride {self.stride}: expected a number of tokens, at most --window {self.window}"
            )

    def _check_text_fields(self) -> None:
        names = names_in(self.text_field)
        if not names:
            raise UsageError("--text_field: expected the name of a field or column")
        if len(names) == 1:
            return
        features = [*names, *(f"{name}_tokens" for name in names), "key", "label"]
        if repeated := next((n for n in features if features.count(n) > 1), ""):
            raise UsageError(
                f"--text_field {self.text_field}: two features would be called {repeated!r}: drop or rename one"
            )
        if self.window:
            raise UsageError(
                f"--window {self.window}: windows are cut from one text: name one --text_field, or drop --window"
            )

    @property
    def keys_files(self) -> bool:
        return super().keys_files or bool(self._key_column)

    @property
    def _key_column(self) -> str:
        """The field or column next to the texts that has their keys."""
        if (self.table and self.path_column) or not self.key.startswith(COLUMN):
            return ""
        return self.key.removeprefix(COLUMN)

    def _check_vocabulary_size(self) -> None:
        from beam_jobs.jobs.text.subwords import check_vocabulary_size

        if self.tokens == "bpe":
            check_vocabulary_size(self.vocabulary_size)
        elif self.given("vocabulary_size") and self.tokens != "words":
            raise UsageError(
                f"--vocabulary_size {self.vocabulary_size}: only --tokens words and bpe learn a vocabulary: drop it"
            )

    def warnings(self, job: Job) -> Iterable[str]:
        return ()  # Most texts have no label.

    def make_job(self, columns: tuple[str, ...], output: str, max_bytes: int) -> TextJob:
        from beam_jobs.jobs.text.text_job import TextJob
        from beam_jobs.jobs.text.text_reader import first_label
        from beam_jobs.sources.labels import holds_lists
        from beam_jobs.sources.tables import stated_classes

        extras = self.extras
        columns = tuple(dict.fromkeys((*columns, *(extra.column for extra in extras))))
        tokens, tokenizer = self._tokenizer()
        inputs, labels, label_field = self._find_texts(columns, output)
        labels.check_names(inputs)
        job = TextJob(
            inputs=replace(inputs, max_bytes=max_bytes),
            labels=labels,
            record=self.record,
            text_fields=names_in(self.text_field),
            label_field=label_field,
            tokens=tokens,
            vocabulary_size=self.vocabulary_size,
            max_length=self.max_length,
            extras=extras,
            columns=columns,
            key_column=self._key_column,
            tokenizer=tokenizer,
            window=self.window,
            stride=self.stride or self.window,
            encodings=self.feature_encodings,
        )
        names = stated_classes(job.inputs, job.label_field) if job.label_field else ()
        several = holds_lists(label_field, first_label(job))
        job = replace(job, several_labels=several, label_names=names)
        _check_first(job)
        return job

    def _tokenizer(self) -> tuple[Tokens, str]:
        """The kind of tokens, and the text of a given tokenizer's file."""
        from beam_jobs.jobs.text.subwords import Subwords
        from beam_jobs.storage.paths import absolute_path

        if self.tokens in _NAMED:
            return cast("Tokens", self.tokens), ""
        return "file", Subwords.read(absolute_path(self.tokens), self.max_length).json

    def _find_texts(self, columns: tuple[str, ...], output: str) -> tuple[Inputs, Labels, str]:
        """The files with the texts, the source of the files' labels, and the label field."""
        from beam_jobs.sources.inputs import Inputs
        from beam_jobs.sources.labels import Labels
        from beam_jobs.sources.table_inputs import EmbeddedInputs, tables_of

        if self.table and self.path_column:
            inputs, labels = self.find_inputs(self.label, columns, output)
            if isinstance(inputs, EmbeddedInputs):
                raise UsageError(
                    f"--path_column {self.path_column}: expected a column with paths of text files"
                )
            return inputs, labels, self.label_field
        for table in self.table:
            tables_of(table)
        patterns = self.table or self.input
        inputs = Inputs.of(patterns, output=output, dialect=self.dialect, key=self.key)
        labels, label_field = replace(Labels.parse(self.label), root=inputs.root), self.label_field
        if labels.columns:
            labels, label_field = Labels(), labels.table
        self.check_delimiter(source.file for source, _ in inputs.first(FILES_TRIED))
        texts = names_in(self.text_field)
        fields = [*filter(None, [label_field, self._key_column]), *columns]
        fields += texts if len(texts) > 1 else ()
        if fields:
            _check_fields(inputs, fields[0], self.record == "file")
        return inputs, labels, label_field


def _check_first(job: TextJob) -> None:
    """Raises UsageError if none of the first inputs becomes a record, as with a wrong --text_field."""
    from beam_jobs.sources.chunks import Chunk

    errors: list[str] = []
    found = (job.inputs.sources(pattern, limit=_TEXTS_TRIED) for pattern in job.inputs.patterns)
    chunks = map(Chunk.whole, itertools.chain.from_iterable(found))
    texts = itertools.chain.from_iterable(map(job.each, chunks))
    for text in itertools.islice(texts, _TEXTS_TRIED):
        if text.keys:
            return
        errors += map(str, text.rejects)
    if errors:
        several = f"no text among the first {len(errors)}: " if errors[1:] else ""
        raise UsageError(several + errors[0])


def _check_fields(inputs: Inputs, field: str, whole: bool) -> None:
    """Raises UsageError for a field if records are whole files, or the first files are all plain text."""
    if whole:
        raise UsageError(
            f"field {field!r}: --record file reads no fields; drop it, or use --table with --path_column"
        )
    for pattern in inputs.patterns:
        for file in itertools.islice(inputs.files(pattern, FILES_TRIED), FILES_TRIED):
            if not file.key.lower().endswith((".txt", ".txt.gz")):
                return
    raise UsageError(
        f"field {field!r}: .txt files have no fields; use .jsonl or a table, or --table with --path_column"
    )
