"""The flags that name raw inputs: files, archives, or the rows of tables."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from beam_jobs.cli.flags import JobFlags, flag
from beam_jobs.errors import UsageError

if TYPE_CHECKING:
    from beam_jobs.jobs.job import Job
    from beam_jobs.sources.extra_features import ExtraFeature
    from beam_jobs.sources.inputs import Inputs
    from beam_jobs.sources.labels import Labels
    from beam_jobs.sources.rows import Dialect

# Precedes the name of a column in a value.
COLUMN = "column:"

# Files that are looked at before the run.
FILES_TRIED = 100


def label_flag(
    default: str,
    also: str = "",
    metavar: str = "",
    check: Callable[..., Any] | str = "sources.labels:Labels.parse",
) -> str:
    """The flag `--label`, whose default depends on the job; empty for the folder, if there are several.

    Args:
        default, check: As in `flag` and `Flag`.
        also, metavar: A sentence about further places of labels, and their names after a bar.
    """
    return flag(
        default,
        "parent: the file's folder; csv: a .csv file with the columns path and label; column: a column of --table or "
        f"of the .json next to an archive member, or `cls` for its .cls; lists give several labels{also}",
        unset=default or "parent; none if all inputs lie in one folder",
        metavar=f"parent|none|csv:FILE|column:NAME{metavar}",
        check=check,
        everyday=True,
    )


@dataclass(frozen=True)
class InputFlags(JobFlags):
    """The flags that jobs of raw inputs share."""

    title = "inputs"

    # The flags that apply only to the rows of a --table.
    of_rows: ClassVar[tuple[str, ...]] = ("path_column", "key", "delimiter", "text_encoding")

    input: list[str] = flag(
        [],
        "files or archives (.zip, .tar, .tar.gz): a file, a folder with its subfolders, or a pattern in quotes such "
        "as 'photos/*/*.jpg' (** crosses folders); several may follow. With --table, the folder of its relative paths",
        unset="the table's folder",
        metavar="PATTERN",
        everyday=True,
    )
    table: list[str] = flag(
        [],
        "a .csv, .tsv, .jsonl, .json (each also .gz), .parquet, .feather or .arrow file whose rows "
        "name files; or a pattern; several may follow",
        metavar="FILE",
        everyday=True,
    )
    path_column: str = flag(
        "",
        "the column of --table with the paths, or of .parquet with the files themselves",
        unset="path, file, filename, file_name, key, image or name, or the struct column with images or "
        "audio of a .parquet; the text job reads the texts from the table itself unless this is given",
    )
    key: str = flag(
        "path",
        "source of keys: path (of an archive member: archive and member); member, only the path in the archive, so "
        "that a folder and its archive have equal keys and splits; with --table also row (path and number), or a column",
        metavar="path|member|row|column:NAME",
    )
    delimiter: str = flag(
        "",
        "the character between the columns of .csv and .tsv, such as ';'; '\\t' is a tab",
        unset="the comma, ;, tab or | of the first line in .csv, a tab in .tsv",
        metavar="CHARACTER",
    )
    text_encoding: str = flag(
        "utf-8",
        "the encoding of texts and tables, such as utf-16, cp1252 or shift_jis; .parquet has none",
    )
    extra_features: str = flag(
        "",
        "columns to store as features, such as age:float32,site:string,tags:string[],place:float32[3]",
        metavar="NAME:DTYPE,…",
        check="sources.extra_features:parse_extra_features",
    )

    encodings: str = flag(
        "",
        "encodings of features (by names before --names), such as boxes=list; overrides --encoding: tensor, TensorProto; "
        "raw, bytes without dtype and shape; list, numbers or strings of an Example; text, one string; zlib, raw or text "
        "compressed; zlib_shuffled, raw with its bytes sorted by their place in a number, compressed; jpeg; png",
        unset="those of the job",
        metavar="FEATURE=ENCODING,…",
        check="jobs.encodings:parse_encodings",
    )

    target: str = flag(
        "",
        "a column of numbers to predict, such as column:price: feature `target`, float32; for labels that are "
        "not classes, with or without --label",
        metavar="column:NAME",
        check="sources.extra_features:parse_target",
    )

    @property
    def dialect(self) -> Dialect:
        """How tables and texts are written."""
        from beam_jobs.sources.rows import Dialect

        return Dialect.parse(self.text_encoding, self.delimiter)

    def validate(self) -> None:
        super().validate()
        _ = self.dialect
        if not self.table:
            for name in self.of_rows:
                if self.given(name) and not (name == "key" and self.keys_files):
                    raise UsageError(
                        f"{self.typed(name)}: it applies only to the rows of a --table: add one, or drop --{name}"
                    )
        elif len(self.input) > 1:
            raise UsageError(
                f"--input {' '.join(self.input)}: with --table, expected one folder, which contains all files"
            )

    @property
    def keys_files(self) -> bool:
        """Whether `--key` names records without a --table."""
        return self.key == "member"

    def check_delimiter(self, first_files: Iterable[str]) -> None:
        """Raises UsageError for a `--delimiter` that applies to none of the first files."""
        from beam_jobs.sources.tables import has_delimiter

        if self.delimiter and not any(map(has_delimiter, first_files)):
            raise UsageError(
                f"--delimiter {self.delimiter}: none of the first files is a .csv or a .tsv: drop it"
            )

    @property
    def feature_encodings(self) -> dict[str, str]:
        """Feature -> encoding, of `--encodings`."""
        from beam_jobs.jobs.encodings import parse_encodings

        return parse_encodings(self.encodings)

    @property
    def extras(self) -> tuple[ExtraFeature, ...]:
        """The columns that become features."""
        from beam_jobs.sources.extra_features import parse_extra_features, parse_target

        extras = parse_extra_features(self.extra_features) if self.extra_features else ()
        return (*extras, parse_target(self.target)) if self.target else extras

    def find_inputs(
        self,
        label: str,
        columns: Iterable[str],
        output: str,
        join: str = "",
        in_files: bool = False,
    ) -> tuple[Inputs, Labels]:
        """The input files, with the columns that the job needs, and where their labels come from.

        Args:
            label, join: The values of `--label` and `--join`.
            columns: Columns needed for anything but the label; an empty name is ignored.
            output: The output directory, whose files are never inputs.
            in_files: Whether the files themselves may have the columns.

        Raises:
            UsageError: Inputs are missing, or have no columns.
        """
        from beam_jobs.sources.labels import Labels, holds_lists
        from beam_jobs.sources.table_inputs import EmbeddedInputs
        from beam_jobs.sources.tables import stated_classes

        labels = Labels.parse(label or "parent")
        wanted = tuple(dict.fromkeys(filter(None, (*labels.columns, *columns))))
        inputs = self._inputs(wanted, output, join, in_files)
        if labels.columns:
            value = inputs.first_value(labels.table)
            labels = replace(
                labels,
                several=holds_lists(labels.table, value),
                names=stated_classes(inputs, labels.table) if self.table else (),
            )
        labels = replace(labels, root=inputs.root)
        if labels.mode == "parent" and isinstance(inputs, EmbeddedInputs):
            raise UsageError(
                "--label parent: files in a table have no folders: add --label column:NAME or --label none"
            )
        return inputs, labels

    def effective_labels(self, labels: Labels, inputs: Inputs) -> Labels:
        """The labels, which `check_names` checks; none if no flag asks for them, and all inputs lie in one folder."""
        from beam_jobs.sources.labels import Labels

        labels.check_names(inputs)
        asked = self.given("label") or self.table
        return labels if asked or not _lie_in_one_folder(inputs) else Labels()

    def warnings(self, job: Job) -> Iterable[str]:
        if not self.given("label") and "label" not in job.schema:
            yield (
                "all inputs are in one folder, so the records have no label: add --label csv:FILE or column:NAME, "
                "or --label none if this is what you want"
            )

    def _inputs(self, columns: tuple[str, ...], output: str, join: str, in_files: bool) -> Inputs:
        from beam_jobs.sources.archives.archive import archive_kind
        from beam_jobs.sources.inputs import Inputs
        from beam_jobs.sources.joined_inputs import JoinedInputs
        from beam_jobs.sources.table_inputs import TableInputs
        from beam_jobs.storage.listing import match

        if self.table:
            tables = TableInputs.of_tables(
                self.table,
                root=self.input[0] if self.input else "",
                path_column=self.path_column,
                columns=columns,
                key=self.key,
                output=output,
                dialect=self.dialect,
                complete=not in_files,
            )
            found = (match(pattern, FILES_TRIED) for pattern in tables.patterns)
            self.check_delimiter(file.path for file in itertools.chain.from_iterable(found))
            return tables
        inputs = Inputs.of(self.input, output=output, samples=True, columns=columns, key=self.key)
        known = in_files or any(
            archive_kind(pattern) or pattern.endswith("*") for pattern in inputs.patterns
        )
        if columns and not known:
            raise UsageError(
                f"column {columns[0]!r}: expected a --table, or archives with a .json next to each member"
            )
        if join:
            return JoinedInputs(inputs.patterns, inputs.root, output, join=join)
        return inputs


def _lie_in_one_folder(inputs: Inputs) -> bool:
    """Whether no input lies in a folder below the common root, or in an archive, that could name its class."""
    from beam_jobs.sources.archives.archive import archive_kind
    from readers.files.local import is_local

    if inputs.in_one_folder:
        return True
    if is_local(inputs.root):
        entries = os.scandir(inputs.root or "/")
        if not any(entry.is_dir() or archive_kind(entry.name) for entry in entries):
            return True
    return not any("/" in source.file or archive_kind(source.file) for source in inputs.named())
