"""Mutants of a module: its syntax tree with one small fault each, such as `<` in place of `<=`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}

_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}

# `strict=True` and the stack level of a warning change nothing in a program that is right.
_KEPT_KEYWORDS = {"strict", "stacklevel"}


@dataclass(frozen=True)
class Mutant:
    """One fault in one module.

    Attributes:
        key: The module, the function and the change, in words that stay if lines move.
        path: The module's file.
        line: The line of the change.
        lines: The lines of the statement that it is in, up to its body.
        function: The (name, first line) of the outermost function around it; None outside of functions.
        number: Which mutant of the module it is.
    """

    key: str
    path: Path
    line: int
    lines: range
    function: tuple[str, int] | None
    number: int


@dataclass(frozen=True)
class _Place:
    """Where a node is: a field of its parent, and the place in that field if it is a list."""

    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


@dataclass(frozen=True)
class _Change:
    place: _Place
    before: ast.AST
    after: ast.AST
    statement: ast.stmt
    functions: tuple[ast.FunctionDef, ...]
    scope: str


def mutants_of(path: Path, name: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines.

    Args:
        path: The module's file.
        name: What keys call the file.
    """
    found, seen = [], Counter[str]()
    for number, change in enumerate(_changes_of(ast.parse(path.read_text(encoding="utf-8")))):
        key = f"{name} {change.scope}: {_text(change.before)} -> {_text(change.after)}"
        seen[key] += 1
        outer = change.functions[0] if change.functions else None
        found.append(
            Mutant(
                key if seen[key] == 1 else f"{key} #{seen[key]}",
                path,
                change.before.lineno,  # type: ignore[attr-defined]
                _lines(change.statement),
                outer and (outer.name, first_line(outer)),
                number,
            )
        )
    return found


def mutated(mutant: Mutant) -> tuple[ast.Module, ast.stmt]:
    """The syntax tree of the module with the fault, and its statement of the module that has it."""
    tree = ast.parse(mutant.path.read_text(encoding="utf-8"))
    change = next(c for n, c in enumerate(_changes_of(tree)) if n == mutant.number)
    statement = next(node for node in tree.body if _contains(node, change.before))
    at = tree.body.index(statement)
    change.place.put(change.after)
    return tree, tree.body[at]


def _contains(tree: ast.AST, node: ast.AST) -> bool:
    return any(each is node for each in ast.walk(tree))


def first_line(function: ast.FunctionDef) -> int:
    """The line that the function's code object begins with: that of its first decorator."""
    return min([function.lineno, *(node.lineno for node in function.decorator_list)])


def _lines(statement: ast.stmt) -> range:
    """The lines of a statement; of one that has a body, those of its head."""
    body = getattr(statement, "body", None)
    stop = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(stop, statement.lineno + 1))


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:97] + "..."


def _changes_of(tree: ast.Module) -> Iterator[_Change]:
    for statement in tree.body:
        if not _is_left_out(statement):
            place = _Place(tree, "body", tree.body.index(statement))
            yield from _walk(statement, place, statement, (), "")


def _is_left_out(statement: ast.stmt) -> bool:
    """Whether a statement of the module is not executed, or is for names and types alone."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        # An alias of a type begins like a class.
        return names == ["__all__"] or any(n[0].isupper() and not n.isupper() for n in names)
    return not isinstance(statement, (ast.FunctionDef, ast.ClassDef))


def _walk(
    node: ast.AST,
    place: _Place,
    statement: ast.stmt,
    functions: tuple[ast.FunctionDef, ...],
    scope: str,
    in_raise: bool = False,
) -> Iterator[_Change]:
    """Yields the changes of a node, and of those in it."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        scope = f"{scope}.{node.name}".lstrip(".")
    if isinstance(node, ast.stmt):
        statement = node
    in_raise = in_raise or isinstance(node, ast.Raise)
    for after in _changes(node, place, in_raise):
        ast.fix_missing_locations(ast.copy_location(after, node))
        yield _Change(place, node, after, statement, functions, scope or "module")
    if isinstance(node, ast.FunctionDef):
        inside = (*functions, node)
        # Defaults are evaluated outside of the function.
        for field in ("defaults", "kw_defaults"):
            for index, default in enumerate(getattr(node.args, field)):
                if default is not None:
                    at = _Place(node.args, field, index)
                    yield from _walk(default, at, node, functions, scope)
        for index, child in enumerate(node.body):
            if not _is_plain(child):
                yield from _walk(child, _Place(node, "body", index), statement, inside, scope)
        return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "keywords") and not (
            isinstance(node, ast.Call) and field == "keywords"
        ):
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if isinstance(child, ast.AST) and not _is_plain(child):
                at = _Place(node, field, index if isinstance(value, list) else None)
                yield from _walk(child, at, statement, functions, scope, in_raise)


def _is_plain(node: ast.AST) -> bool:
    """Whether a node stays as it is: docstrings, assertions, what is for type checkers alone."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.keyword):
        return node.arg in _KEPT_KEYWORDS
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, (ast.Assert, ast.expr_context, ast.operator, ast.cmpop))


def _changes(node: ast.AST, place: _Place, in_raise: bool) -> Iterator[ast.AST]:
    """Yields what a node becomes in each of its mutants."""
    if isinstance(node, ast.stmt):
        yield from _changes_of_statement(node, place)
    if isinstance(node, ast.expr):
        yield from _changes_of_expression(node, place, in_raise)


def _changes_of_statement(node: ast.stmt, place: _Place) -> Iterator[ast.stmt]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.AugAssign(op=op):
            yield ast.Assign(targets=[node.target], value=node.value)
            if type(op) in _ARITHMETIC:
                yield ast.AugAssign(node.target, _ARITHMETIC[type(op)](), node.value)
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield ast.Return(ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _changes_of_expression(node: ast.expr, place: _Place, in_raise: bool) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, ops, comparators):
            for n, op in enumerate(ops):
                other = [*ops[:n], _COMPARISONS[type(op)](), *ops[n + 1 :]]
                yield ast.Compare(left, other, comparators)
        case ast.BoolOp(op, values):
            for n in range(len(values)):
                rest = [*values[:n], *values[n + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            yield ast.BinOp(left, _ARITHMETIC[type(op)](), right)
        case ast.Constant(value):
            # What a message says is for people; what its test looks for is for the test to say.
            if isinstance(value, bool):
                yield ast.Constant(not value)
            elif isinstance(value, (int, float)):
                yield ast.Constant(value + 1)
            elif isinstance(value, str) and not in_raise:
                yield ast.Constant(f"XX{value}XX")
            elif isinstance(value, bytes):
                yield ast.Constant(b"XX" + value + b"XX")
        case ast.Call(ast.Name(name), arguments, keywords):
            if name in _FUNCTIONS and (name != "sorted" or not keywords):
                yield ast.Call(ast.Name(_FUNCTIONS[name], ast.Load()), arguments, keywords)
    if isinstance(node, ast.Call):
        for n, keyword in enumerate(node.keywords):
            if keyword.arg and keyword.arg not in _KEPT_KEYWORDS:
                yield ast.Call(node.func, node.args, [*node.keywords[:n], *node.keywords[n + 1 :]])
    is_condition = place.field == "test" or (
        place.field == "ifs" and isinstance(place.parent, ast.comprehension)
    )
    if is_condition and not isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
        yield ast.UnaryOp(ast.Not(), node)
