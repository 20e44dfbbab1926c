"""Labels: finds the label of a record, and numbers the names of classes."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from beam_jobs.errors import RejectError, UsageError, reason_of
from beam_jobs.sources.archives.archive import archive_kind
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import COLUMN, Label, Source, column_of
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.paths import comparable
from readers.files.local import is_local
from readers.format.schema import Feature

PATH_COLUMNS = ("path", "file", "filename", "file_name", "key", "image", "name")

LABEL_COLUMNS = ("label", "class")

LABEL = "label"

_ARCHIVE_SUFFIX = re.compile(r"\.(zip|tar|tgz|tar\.gz)\Z", re.IGNORECASE)

# The sources of labels: none, the name of the file's folder, a table of labels, or a column.
LabelMode = Literal["none", "parent", "csv", "column"]


# Larger floats are all whole, because they have no room for a fraction.
_EXACT_FLOATS = 2.0**53


def label_text(value: Any) -> str:
    """The canonical text of a label: text as it is, the digits of a whole number, true or false; else a RejectError.

    Programs write a column of whole numbers with gaps as floats, so 3.0 counts as 3, in text too.
    """
    if isinstance(value, str) and value:
        return value[:-2] if value.endswith(".0") and whole_number(value) is not None else value
    if isinstance(value, bool):  # Python's True is also the integer 1, which is another class.
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_FLOATS:
        return str(int(value))
    raise RejectError(f"label {value!r:.80}: expected text or a whole number")


def column_text(row: Mapping[str, Any], name: str) -> str:
    """The `label_text` in a column, for a group, a split or a key; RejectError without one, or with the character 0."""
    value = column_of(row, name)
    with contextlib.suppress(RejectError):
        if "\0" not in (text := label_text(value)):
            return text
    without = " without the character 0" if isinstance(value, str) and value else ""
    raise RejectError(f"column {name!r} is {value!r:.80}, expected text{without} or a whole number")


def label_of(value: Any, several: bool, names: tuple[str, ...] = ()) -> Label:
    """The label, or the labels, in a field.

    Args:
        value: The field's value.
        several: Whether a record may have any number of labels; a single one becomes a tuple of one.
        names: The names of classes if whole numbers are their ids; else empty.

    Raises:
        RejectError: a label is neither text nor a whole number, or a list instead of a single label.
    """
    value = list_in(value)
    if several:
        values = value if isinstance(value, list) else [value]
        return tuple(_class_name(item, names) for item in values)
    if isinstance(value, list):
        raise RejectError(f"label {value!r:.80}: expected one label, as in the first record")
    return _class_name(value, names)


def list_in(value: Any) -> Any:
    """The list in a text that pandas wrote, such as `[0, 1]` or `['a', 'b']`; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        for text in (value, value.replace("'", '"')):
            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(text)
    return value


def _class_name(value: Any, names: tuple[str, ...]) -> str:
    text = label_text(value)
    if type(value) is int and whole_number(text) is None:
        raise RejectError(f"label {value}: expected a whole number that int64 holds")
    if not names or (isinstance(value, str | bool) and text in names):
        return text
    if not isinstance(value, str | bool) and 0 <= value < len(names):
        return names[int(value)]
    raise RejectError(f"label {value!r:.80}: the table names {len(names)} classes, numbered from 0")


def field_label(
    row: Mapping[str, Any], name: str, several: bool, names: tuple[str, ...] = ()
) -> Label:
    """The label, or the labels, in a column of a row; arguments and errors as for `label_of`."""
    value = column_of(row, name)
    try:
        return label_of(value, several, names)
    except RejectError as error:
        raise RejectError(f"column {name!r}: {error}") from None


def holds_lists(column: str, value: Any) -> bool:
    """Whether a column of labels has lists of labels, given its first value; UsageError for a number that is not whole."""
    if isinstance(value, float) and not value.is_integer() and not math.isnan(value):
        raise UsageError(
            f"label column {column!r} holds {value!r}, but labels are classes: keep numbers with "
            f"--target {COLUMN}{column} instead"
        )
    return isinstance(list_in(value), list)


def count_labels(labels: Iterable[Label | None]) -> Counter[str]:
    """Counts how often each label occurs."""
    counts: Counter[str] = Counter()
    for label, count in Counter(labels).items():
        for text in (label,) if isinstance(label, str) else label or ():
            counts[text] += count
    return counts


@dataclass(frozen=True)
class Labels:
    """The source of the labels of files.

    Attributes:
        mode: The kind of source.
        table: Path of the table with mode "csv", name of the column with mode "column".
        several: Whether the column holds lists of labels.
        names: The names of classes by id if the tables with the column state them.
        root: The folder of the files, to which the paths of a table may add.
    """

    mode: LabelMode = "none"
    table: str = ""
    several: bool = False
    names: tuple[str, ...] = ()
    root: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> Labels:
        """Parses a `--label` flag; UsageError if it is not `parent`, `none`, `csv:FILE` or `column:NAME`."""
        if text == "parent":
            return cls("parent")
        if text == "none":
            return cls()
        kind, _, table = text.partition(":")
        if kind == "column" and table:
            return cls("column", table)
        if kind != "csv" or not table:
            raise UsageError(f"--label {text}: expected parent, none, csv:FILE or column:NAME")
        labels = cls("csv", str(Path(table).absolute()) if is_local(table) else table)
        labels._by_key  # noqa: B018  (Reads the table now: if it is missing, the command fails at once.)
        return labels

    @cached_property
    def _by_key(self) -> dict[str, str]:
        try:
            text = read_bytes(self.table).decode("utf-8-sig")
            rows = iter(list(csv.reader(io.StringIO(text, newline=""))))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise self._error(f"cannot be read ({reason_of(error)})") from None
        header = [name.strip().lower() for name in next(rows, [])]
        path = next((header.index(n) for n in PATH_COLUMNS if n in header), None)
        label = next((header.index(n) for n in LABEL_COLUMNS if n in header), None)
        if path is None or label is None:
            raise self._error(
                f"its first line must name a column {'/'.join(PATH_COLUMNS)} and a column "
                f"{'/'.join(LABEL_COLUMNS)}, it has {', '.join(header) or 'none'}"
            )
        table: dict[str, str] = {}
        for number, row in enumerate(rows, 2):
            if not row:
                continue
            if len(row) <= max(path, label) or not row[label].strip():
                raise self._error(f"line {number} has too few columns, or an empty label")
            name, text = comparable(row[path]), label_text(row[label].strip())
            if (known := table.setdefault(name, text)) != text:
                raise self._error(
                    f"line {number} labels {name!r} {text!r}, an earlier line labels it {known!r}"
                )
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the contents of the table.
        return Labels, (self.mode, self.table, self.several, self.names, self.root)

    @property
    def class_names(self) -> dict[str, tuple[str, ...]]:
        """The names of classes by feature, if the tables state them."""
        return {LABEL: self.names} if self.names else {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold labels."""
        return (self.table,) if self.mode == "column" else ()

    @property
    def feature(self) -> Feature | None:
        """The feature `label` of records; None without labels."""
        if self.mode == "none":
            return None
        return Feature("int64", (None,), "list") if self.several else Feature("int64")

    def of(self, source: Source) -> Label | None:
        """The label of the records of a source; None with mode "none".

        Raises:
            RejectError: the column has no valid label, the file no folder under the root, or the table no line
                for it.
        """
        if self.mode == "none":
            return None
        if self.mode == "column":
            return field_label(source.row, self.table, self.several, self.names)
        key = source.file
        if self.mode == "parent":
            above = key.rpartition("/")[0] or source.archive
            if not above:
                raise RejectError(
                    "it is in no folder, so it has no label: pass over it with --input 'FOLDER/*/*', "
                    "or add --label csv:FILE or --label none"
                )
            folder = above.rpartition("/")[2]
            return label_text(_ARCHIVE_SUFFIX.sub("", folder) if source.archive else folder)
        name = self._name_of(source)
        if name is None:
            raise RejectError(f"--label csv:{Path(self.table).name} has no line for it")
        return self._by_key[name]

    def _name_of(self, source: Source) -> str | None:
        """The name of a file in the table of labels; None if it has no line."""
        key = comparable(source.file)
        names, (folder, _, name) = [key, comparable(f"{self.root}/{key}")], key.rpartition("/")
        # Whether a packed archive has this name in several folders is not known before it is read.
        if source.location or folder == source.archive or not source.archive:
            names += [key.removeprefix(f"{comparable(source.archive)}/"), name]
        return next((name for name in names if name in self._by_key), None)

    def check_names(self, inputs: Inputs) -> None:
        """Raises UsageError if a name without a folder in the table of labels fits several inputs."""
        if self.mode != "csv":
            return
        owners, packed = dict[str, str](), list[str]()
        for source in inputs.named():
            file, name = source.file, None if source.error else self._name_of(source)
            if source.packed:  # It may have files of any name.
                packed.append(file)
            elif name and owners.setdefault(name, file) != file:
                raise self._shared(owners[name], file)
        bare = [name for name in self._by_key if "/" not in name]
        fits = [*packed, *(owners[name] for name in bare if name in owners)]
        if packed and bare and len(fits) > 1:
            raise self._shared(*fits[:2])

    def _shared(self, *files: str) -> UsageError:
        one, other = sorted(files)
        return self._error(
            f"a name fits both {one} and {other}: add the folders there, too, such as "
            f"{other}{'/NAME' * bool(archive_kind(other))}"
        )

    def _error(self, text: str) -> UsageError:
        return UsageError(f"--label csv:{self.table}: {text}")


# With more distinct labels than this, the field is not a class.
MAX_LABELS = 100_000

_WHOLE_NUMBER = re.compile(r"(0|-?[1-9][0-9]{0,18})(?:\.0)?")

# The features whose class names become integers.
CLASSES = (LABEL, "box_labels")

# Class names by id, for each feature; no names if all classes are integers.
Names = Mapping[str, tuple[str, ...]]


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """The names of all labels by id; no names if every label is a whole number.

    Whole numbers are kept (a folder called 10 is label 10); other names are numbered in sorted order.
    """
    names = sorted(set(labels))
    return tuple(names) if None in map(whole_number, names) else ()


def whole_number(label: str) -> int | None:
    """The int64 of a label that is a whole number, such as `3` or `3.0`; None for other labels."""
    digits = _WHOLE_NUMBER.fullmatch(label)
    number = int(digits[1]) if digits else 2**63
    return number if -(2**63) <= number < 2**63 else None


class ClassIds:
    """The integers of class names.

    Args:
        names: Names from `label_names` by feature; None if they are not known yet, which makes every class 0.
    """

    def __init__(self, names: Names | None) -> None:
        self._known = names is not None
        self._ids = {f: {name: i for i, name in enumerate(n)} for f, n in (names or {}).items()}

    def of(self, label: Label, feature: str = LABEL) -> int | list[int]:
        """The integer of a label, or of each of its labels; RejectError if one is not known."""
        if isinstance(label, tuple):
            return [self._id(text, feature) for text in label]
        return self._id(label, feature)

    def _id(self, text: str, feature: str) -> int:
        if not self._known:
            return 0
        ids = self._ids.get(feature)
        id_ = ids.get(text) if ids else whole_number(text)
        if id_ is None:
            raise RejectError(f"label {text!r:.80} was not seen when the inputs were listed")
        return id_

    def put(self, record: dict[str, Any]) -> None:
        """Replaces class names in a record by their integers."""
        for feature in CLASSES:
            if feature in record:
                record[feature] = self.of(record[feature], feature)
