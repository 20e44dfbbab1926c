"""A condition on the numbers in an index, such as `label in ["cat", "dog"] and len(tokens) < 512`."""

from __future__ import annotations

import ast
import difflib
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from readers.format.index import LENGTH, VALUE, numbers_of
from readers.format.schema import Feature

_MOST_CHARACTERS, _MOST_NESTED = 10_000, 100

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: np.isin},
    ast.NotIn: lambda numbers, some: ~np.isin(numbers, some),
}

_ALLOWED = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, *_COMPARISONS),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
)


_POSSIBLE = "is not possible; use features, len(NAME), numbers, + - * / // %, == != < <= > >=, in [...], and, or, not"


class Where:
    """A condition on records, with the syntax and the results of Python.

    `NAME` is the value of a feature that is a single number, and `len(NAME)` the size of the first unknown dimension of a
    feature; a name that is not an identifier of Python is written `value("image/class")` or `len("image/ids")`. Classes may
    be named: `label == "cat"`. A float32 is compared as the number that it is, so a stored 0.1 does not equal 0.1.

    A comparison of a feature with constants takes a few nanoseconds per record, any other one about 0.1 µs.

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
        checker = _Checker(text.strip(), list(numbers_of(schema)), classes)
        self._text, self._tree, self.sections = text, checker.checked(), checker.sections
        if not self.sections:
            raise ValueError(f"{text!r} names no feature; {checker.known()}")

    def __call__(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Whether each record fulfils the condition, bool [n], given an array [n] for each of `sections`.

        Raises:
            ValueError: A divisor is 0, or an integer is too large for a float.
        """
        return self._evaluated(self._tree, [columns[section] for section in self.sections])

    def _evaluated(self, node: ast.expr, columns: Sequence[np.ndarray]) -> np.ndarray:
        match node:
            case ast.Name(id=name):
                return columns[int(name[1:])].astype(bool)
            case ast.UnaryOp(ast.Not(), operand):
                return ~self._evaluated(operand, columns)
            case ast.BoolOp(op, values):
                # As in Python, a part is evaluated only for the records that the parts before leave open.
                is_all, rows = isinstance(op, ast.And), np.arange(len(columns[0]))
                found = np.full(len(rows), is_all)
                for value in values:
                    found[rows] = self._evaluated(value, [column[rows] for column in columns])
                    rows = np.flatnonzero(found == is_all)
                return found
            case ast.Compare(ast.Name(id=name), [op], [ast.Constant(value)]):
                compared = _by_numpy(columns[int(name[1:])], op, value)
                if compared is not None:
                    return compared
        return self._by_python(node, columns)

    def _by_python(self, node: ast.expr, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Evaluates a part record by record with the numbers of Python, which neither overflow nor round integers."""
        names = [ast.arg(f"_{number}") for number in range(len(columns))]
        function = ast.Lambda(ast.arguments([], names, None, [], [], None, []), node)
        tree = ast.fix_missing_locations(ast.Expression(function))
        evaluate = eval(compile(tree, "<condition>", "eval"), {"__builtins__": {}})
        try:
            numbers = map(evaluate, *(column.tolist() for column in columns))
            return np.fromiter(map(bool, numbers), bool, len(columns[0]))
        except (ZeroDivisionError, OverflowError) as error:
            advice = "test for it before, as in x != 0 and y / x > 2"
            raise _error(self._text, node, f"fails for a record ({error}); {advice}") from None


def _by_numpy(column: np.ndarray, op: ast.cmpop, constant: Any) -> np.ndarray | None:
    """Compares numbers with a constant or a tuple of constants; None if NumPy might round one of them."""
    is_float = column.dtype.kind == "f"
    most, dtype = (1 << 53, np.float64) if is_float else (1 << 63, np.int64)
    values = constant if isinstance(constant, tuple) else [constant]
    fit = (-most <= v < most and (is_float or isinstance(v, int)) for v in values)
    if column.dtype == np.uint64 or not all(fit):
        return None
    found: np.ndarray = _COMPARISONS[type(op)](column.astype(dtype), np.array(constant, dtype))
    return found


class _Checker(ast.NodeTransformer):
    """Makes a tree of known nodes: numbers of an index become `_0`, `_1` ..., names of classes ids, and lists constants.

    Attributes:
        sections: The sections of these numbers.
    """

    def __init__(
        self, text: str, numbers: Sequence[str], classes: Mapping[str, Sequence[str]]
    ) -> None:
        self._text, self._classes, self.sections = text, classes, list[str]()
        self._numbers = {_written(section): section for section in numbers}

    def checked(self) -> ast.expr:
        """The tree of the text; ValueError if it has any other part."""
        if len(self._text) > _MOST_CHARACTERS:
            raise ValueError(
                f"the condition has {len(self._text):,} characters, expected at most {_MOST_CHARACTERS:,}"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(self._text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(
                f"{self._text[:200]!r} is not a condition ({error or 'nested too deeply'}); expected one such as "
                'len(tokens) < 512; write a name such as image/class as value("image/class")'
            ) from None
        nodes: list[ast.AST] = [tree]
        for _ in range(_MOST_NESTED):
            nodes = [child for node in nodes for child in ast.iter_child_nodes(node)]
        if nodes:
            raise self._error(tree, f"is nested in more than {_MOST_NESTED} levels")
        checked: ast.expr = self.visit(tree)
        return checked

    def known(self) -> str:
        """The numbers that a condition may name."""
        return f"the index has {', '.join(self._numbers) or 'no numbers'}"[:500]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, _ALLOWED):
            return super().generic_visit(node)
        raise self._error(node, _POSSIBLE)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, bool | int | float | tuple):
            raise self._error(node, _POSSIBLE)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            number: Any = node.operand.value
            return ast.copy_location(ast.Constant(-number), node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._number(node, VALUE + node.id)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(ast.Name("len"), [ast.Name(id=name) | ast.Constant(str(name))], []):
                return self._number(node, LENGTH + name)
            case ast.Call(ast.Name("value"), [ast.Constant(str(name))], []):
                return self._number(node, VALUE + name)
        raise self._error(node, _POSSIBLE)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        sides = [node.left, *node.comparators]
        for at, op in enumerate(node.ops):
            left, right = sides[at : at + 2]
            if isinstance(op, ast.In | ast.NotIn):
                sides[at + 1] = self._list(right, left)
            elif isinstance(op, ast.Eq | ast.NotEq):
                sides[at : at + 2] = self._by_id(left, right), self._by_id(right, left)
        node.left, *node.comparators = sides
        return self.generic_visit(node)

    def _list(self, node: ast.expr, feature: ast.expr) -> ast.expr:
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.visit(self._by_id(item, feature)) for item in node.elts]
            if all(isinstance(item, ast.Constant) for item in items):
                constants: Any = tuple(item.value for item in items)
                return ast.copy_location(ast.Constant(constants), node)
        raise self._error(node, "is not a list of numbers or names of classes")

    def _by_id(self, node: ast.expr, feature: ast.expr) -> ast.expr:
        """The name of a class of a feature as its id; other nodes as they are."""
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return node
        number = self.visit(feature) if isinstance(feature, ast.Name | ast.Call) else None
        section = self.sections[int(number.id[1:])] if number else ""
        names = list(self._classes.get(section.removeprefix(VALUE), ()))
        if node.value not in names:
            known = f"it has {', '.join(names) or 'no names of classes'}"[:500]
            hint = _hint(node.value, names)
            raise self._error(node, f"is not a class of {ast.unparse(feature)}; {known}{hint}")
        return ast.copy_location(ast.Constant(names.index(node.value)), node)

    def _number(self, node: ast.expr, section: str) -> ast.expr:
        written = _written(section)
        if written not in self._numbers:
            hint = _hint(written, self._numbers)
            raise self._error(node, f"is not a number in the index; {self.known()}{hint}")
        if section not in self.sections:
            self.sections.append(section)
        name = ast.Name(f"_{self.sections.index(section)}", ast.Load())
        return ast.copy_location(name, node)

    def _error(self, node: ast.AST, problem: str) -> ValueError:
        return _error(self._text, node, problem)


def _error(text: str, node: ast.AST, problem: str) -> ValueError:
    return ValueError(f"{(ast.get_source_segment(text, node) or text)[:200]!r} {problem}")


def _written(section: str) -> str:
    """The number of a section, as a condition writes it."""
    kind, _, name = section.partition("/")
    if kind == "length":
        return f"len({name})" if name.isidentifier() else f'len("{name}")'
    return name if name.isidentifier() else f'value("{name}")'


def _hint(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else ""
