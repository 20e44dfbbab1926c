"""A condition on the numbers in an index, such as `label in ["cat", "dog"] and len(tokens) < 512`."""

from __future__ import annotations

import ast
import difflib
import keyword
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from readers.format.index import LENGTH, VALUE, numbers_of
from readers.format.schema import Feature

Columns = Mapping[str, np.ndarray]

# Evaluates a part of a condition for n records: bool, int64, float64, or Python's numbers as objects; [n] or [].
_Part = Callable[[Columns, int], np.ndarray]

_MOST_CHARACTERS, _MOST_NESTED, _MOST_LISTED = 10_000, 100, 20

_OPERATORS: dict[type[ast.operator | ast.cmpop], Callable[[Any, Any], Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt},
    **{ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge},
}
_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)

_POSSIBLE = "use names of features, len(NAME), numbers, + - * / // %, == != < <= > >=, in [...], and, or, not"


class Where:
    """A condition on records, with the syntax and the results of Python, computed for many records at once.

    `NAME` is the value of a feature that is a single number; `len(NAME)` is the size of the first unknown dimension of a
    feature. A name that is not an identifier of Python is written `value("image/class")` or `len("image/ids")`. Classes
    may be named: `label == "cat"`. Integers are exact at any size, and a float32 is compared as the number that it is, so
    a stored 0.1 does not equal 0.1. As in Python, `and`, `or` and chained comparisons evaluate their later parts only for
    the records that need them, so `n != 0 and x / n > 2` never divides by 0.

    Args:
        text: The condition.
        schema: The features of the records.
        classes: Feature -> the names of its classes by id, as in `Manifest.classes`.

    Attributes:
        sections: The sections of an index that the condition needs.

    Raises:
        ValueError: The text is not such a condition, or needs a number that is not in an index.
    """

    def __init__(
        self,
        text: str,
        schema: Mapping[str, Feature],
        classes: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self._text, self._schema, self._classes = text.strip(), schema, classes
        self._numbers = numbers_of(schema)
        self._used: set[str] = set()
        self._condition = self._flags(self._parsed(), 0)
        self.sections = sorted(self._used)
        if not self.sections:
            raise ValueError(f"{text!r} names no feature: {self._known()}")
        # Conditions in the place of numbers, and numbers in that of conditions, are errors before any index is read.
        self({name: np.empty(0, self._numbers[name]) for name in self.sections})

    def __call__(self, columns: Columns) -> np.ndarray:
        """Whether each record fulfils the condition, bool [n], given an array [n] for each of `sections`.

        Raises:
            ValueError: A divisor is 0, or an integer is too large to be converted to a float.
        """
        count = len(columns[self.sections[0]])
        with np.errstate(all="ignore"):
            return np.array(np.broadcast_to(self._condition(columns, count), count))

    def _parsed(self) -> ast.expr:
        if len(self._text) > _MOST_CHARACTERS:
            raise ValueError(
                f"the condition has {len(self._text):,} characters, expected at most {_MOST_CHARACTERS:,}"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self._text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
            raise ValueError(
                f"{self._text[:200]!r} is not a condition ({reason}): expected one such as len(tokens) < 512; "
                'write a name such as image/class as value("image/class")'
            ) from None

    def _error(self, node: ast.AST, problem: str) -> ValueError:
        part = ast.get_source_segment(self._text, node) or self._text
        return ValueError(f"{part[:200]!r} {problem}")

    def _flags(self, node: ast.expr, depth: int) -> _Part:
        """Makes a function of a part that must be a condition; `depth` is the number of nodes around it."""
        part = self._part(node, depth)

        def flags(columns: Columns, count: int) -> np.ndarray:
            found = part(columns, count)
            if found.dtype != bool:
                raise self._error(node, "is a number, expected a condition, such as x != 0")
            return found

        return flags

    def _part(self, node: ast.expr, depth: int) -> _Part:
        if depth > _MOST_NESTED:
            raise ValueError(
                f"{self._text[:80]!r} is nested too deeply: expected at most {_MOST_NESTED} levels"
            )
        if section := self._section(node):
            self._used.add(section)
            return lambda columns, _: _python(columns[section])
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                constant = np.array(value) if type(value) is bool else _exactly([value])
                return lambda *_: constant
            case ast.BoolOp(op=op, values=values):
                parts = [self._flags(value, depth + 1) for value in values]
                return lambda *given: _chain(parts, isinstance(op, ast.And), *given)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                flags = self._flags(operand, depth + 1)
                return lambda *given: ~flags(*given)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                zero = ast.Constant(0)
                return self._calculated(node, zero, ast.Sub(), operand, depth + 1)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._calculated(node, left, op, right, depth + 1)
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip([left, *others], ops, others, strict=False)
                parts = [self._compared(node, *pair, depth + 1) for pair in pairs]
                return lambda *given: _chain(parts, True, *given)
        raise self._error(node, f"is not possible in a condition: {_POSSIBLE}")

    def _section(self, node: ast.expr) -> str:
        """The section of `NAME`, `value("NAME")`, `len(NAME)` or `len("NAME")`; empty for other nodes."""
        match node:
            case ast.Name(id=name):
                section = VALUE + name
            case ast.Call(ast.Name("len"), [ast.Name(id=name) | ast.Constant(str(name))], []):
                section = LENGTH + name
            case ast.Call(ast.Name("value"), [ast.Constant(str(name))], []):
                section = VALUE + name
            case _:
                return ""
        if section in self._numbers:
            return section
        if name in self._schema:
            problem = f"is not in the index: {name} is {self._schema[name]}; {self._known()}"
        else:
            problem = f"is not a feature: {self._known()}{_hint(name, self._schema)}"
        raise self._error(node, problem)

    def _known(self) -> str:
        return f"the index has {_listed(map(_written, self._numbers)) or 'no numbers'}"

    def _calculated(
        self, node: ast.expr, left: ast.expr, op: ast.operator, right: ast.expr, depth: int
    ) -> _Part:
        parts, calculate = [self._part(n, depth) for n in (left, right)], _OPERATORS[type(op)]

        def calculated(columns: Columns, count: int) -> np.ndarray:
            numbers = [np.broadcast_to(part(columns, count), count) for part in parts]
            numbers = _alike(numbers, 1 << 31)  # The results of two such integers fit into 64 bits.
            if calculate in _DIVISIONS and (zeros := np.count_nonzero(numbers[1] == 0)):
                raise self._error(
                    node, f"divides by 0 in {zeros:,} records: test it before, x != 0 and ..."
                )
            try:
                return np.asarray(calculate(*numbers))
            except OverflowError:
                raise self._error(node, "has an integer too large for a float") from None

        return calculated

    def _compared(
        self, node: ast.expr, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int
    ) -> _Part:
        """Makes a function of one comparison in a chain."""
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.List | ast.Tuple):
            constants = [self._constant(item, left) for item in right.elts]
            part, wanted = self._part(left, depth), isinstance(op, ast.In)
            return lambda *given: _isin(part(*given), constants) == wanted
        if type(op) not in _OPERATORS:
            raise self._error(node, f"is not possible in a condition: {_POSSIBLE}")
        if isinstance(op, ast.Eq | ast.NotEq):
            left, right = self._by_id(left, right), self._by_id(right, left)
        parts, compare = [self._part(n, depth) for n in (left, right)], _OPERATORS[type(op)]
        return lambda *given: compare(*_alike([part(*given) for part in parts], 1 << 63))

    def _by_id(self, node: ast.expr, feature: ast.expr) -> ast.expr:
        """A text that names a class of a feature, as the id of the class; other nodes as they are."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return ast.copy_location(ast.Constant(self._constant(node, feature)), node)
        return node

    def _constant(self, node: ast.expr, feature: ast.expr) -> Any:
        """A number that a value of a feature is compared with, also the id of a class that is named."""
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            value = None
        if isinstance(value, bool | int | float):
            return value
        if not isinstance(value, str):
            raise self._error(node, "is not a number or the name of a class")
        names = self._classes.get(self._section(feature).removeprefix(VALUE), ())
        if not names:
            of = _listed(self._classes) or "no feature"
            raise self._error(
                node, f"is a text: expected a number; names of classes exist for {of}"
            )
        if value not in names:
            known = f"expected {_listed(map(repr, names))}{_hint(value, names)}"
            raise self._error(node, f"is not the name of a class: {known}")
        return list(names).index(value)


def _chain(parts: Sequence[_Part], is_all: bool, columns: Columns, count: int) -> np.ndarray:
    """Whether all of some parts are true, or any, each evaluated only for records that the ones before leave open."""
    found, rows = np.full(count, is_all), np.arange(count)
    for part in parts:
        few = columns if len(rows) == count else {name: c[rows] for name, c in columns.items()}
        found[rows] = part(few, len(rows))
        rows = rows[found[rows] == is_all]
    return found


def _python(column: np.ndarray) -> np.ndarray:
    """The numbers of a section as bool, int64 or float64; as integers of Python if some are from 2**63 on."""
    if column.dtype.kind == "u":
        return column.astype(object if column.max(initial=0) >> 63 else np.int64)
    return column.astype({"b": np.bool_, "i": np.int64, "f": np.float64}[column.dtype.kind])


def _exactly(values: Sequence[bool | int | float]) -> np.ndarray:
    """An array of numbers in a dtype that has exactly these."""
    has_floats = any(isinstance(value, float) for value in values)
    most = 1 << (53 if has_floats else 63)
    fits = all(isinstance(value, float) or -most <= value < most for value in values)
    return np.array(values, object if not fits else np.float64 if has_floats else np.int64)


def _alike(arrays: Sequence[np.ndarray], most: int) -> list[np.ndarray]:
    """Numbers that NumPy calculates with as Python does.

    These are floats, integers of at most `most`, or floats and integers up to 2**53, the last one before which a float64
    has all; as objects in any other case.
    """
    arrays = [a.astype(np.int64) if a.dtype == bool else a for a in arrays]
    kinds = {a.dtype.kind for a in arrays}
    most = 1 << 53 if "f" in kinds else most
    fit = (
        a.dtype.kind == "f" or -most <= int(a.min(initial=0)) <= int(a.max(initial=0)) <= most
        for a in arrays
    )
    return arrays if "O" not in kinds and all(fit) else [a.astype(object) for a in arrays]


def _isin(values: np.ndarray, constants: Sequence[bool | int | float]) -> np.ndarray:
    numbers, wanted = _alike([values, _exactly(constants)], 1 << 63)
    if numbers.dtype != object:
        return np.isin(numbers, wanted)
    some = set(constants)
    return np.array([n in some for n in numbers.flat], bool).reshape(numbers.shape)


def _written(section: str) -> str:
    """The number of a section, as a condition writes it."""
    kind, _, name = section.partition("/")
    is_plain = name.isidentifier() and not keyword.iskeyword(name)
    text = name if is_plain else f'"{name}"'
    return f"len({text})" if kind == "length" else text if is_plain else f"value({text})"


def _listed(names: Iterable[str]) -> str:
    """The first of some names, separated by commas."""
    first, more = (found := list(names))[:_MOST_LISTED], len(found) > _MOST_LISTED
    return ", ".join(first) + ", ..." * more


def _hint(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else ""
