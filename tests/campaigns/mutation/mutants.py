"""The mutants of a module: its source with one small fault each, such as `<` in place of `<=`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

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

# Fields that are for names and types alone.
_KEPT_FIELDS = {"annotation", "returns", "decorator_list", "bases", "type_params"}


def lines_of_mutants(source: str) -> list[int]:
    """The line of each mutant of a module."""
    return [node.lineno for node, _ in _changes(ast.parse(source))]  # type: ignore[attr-defined]


def mutated(source: str, number: int) -> tuple[str, str]:
    """The fault of a mutant in words, as the code before and after, and the source with it, without comments."""
    tree = ast.parse(source)
    node, after = next(itertools.islice(_changes(tree), number, None))
    ast.fix_missing_locations(ast.copy_location(after, node))
    change = f"{_text(node)} -> {_text(after)}"
    node.__class__, node.__dict__ = after.__class__, after.__dict__  # type: ignore[assignment]
    return change, f"{ast.unparse(tree)}\n"


def _changes(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yields each node that may be changed, and what it may become."""
    for node, in_raise in _nodes(tree):
        for after in _changes_of(node, in_raise):
            yield node, after


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def _nodes(tree: ast.AST, in_raise: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yields the nodes that may be changed, and whether each is in a `raise`."""
    for field, value in ast.iter_fields(tree):
        if field in _KEPT_FIELDS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_kept(child):
                continue
            yield child, in_raise
            yield from _nodes(child, in_raise or isinstance(child, ast.Raise))


def _is_kept(node: ast.AST) -> bool:
    """Whether a node stays as it is: docstrings, assertions, names, and what is for type checkers."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict" | "stacklevel"):
            # These keywords change nothing in a program that is right.
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.JoinedStr():
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            # An alias of a type begins like a class.
            return name == "__all__" or (name.lstrip("_")[:1].isupper() and not name.isupper())
    return isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.expr_context)


def _changes_of(node: ast.AST, in_raise: bool) -> Iterator[ast.AST]:
    """Yields what a node becomes in each of its mutants."""
    match node:
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.AugAssign(target=target, op=op, value=value):
            yield ast.Assign(targets=[target], value=value)
            if type(op) in _ARITHMETIC:
                yield ast.AugAssign(target, _ARITHMETIC[type(op)](), value)
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield ast.Return(ast.Constant(None))
        case ast.If(
            test=ast.Name() | ast.Attribute() | ast.Call() as test, body=body, orelse=orelse
        ):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for n, op in enumerate(ops):
                other = [*ops[:n], _COMPARISONS[type(op)](), *ops[n + 1 :]]
                yield ast.Compare(left, other, comparators)
        case ast.BoolOp(op=op, values=values):
            for n in range(len(values)):
                rest = [*values[:n], *values[n + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            yield ast.BinOp(left, _ARITHMETIC[type(op)](), right)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=bytes(value)):
            yield ast.Constant(b"XX" + value + b"XX")
        case ast.Constant(value=str(value)) if not in_raise:
            # What an error says is for people.
            yield ast.Constant(f"XX{value}XX")
        case ast.Call(func=function, args=arguments, keywords=keywords):
            if isinstance(function, ast.Name) and function.id in _FUNCTIONS and not keywords:
                other = ast.Name(_FUNCTIONS[function.id], ast.Load())
                yield ast.Call(other, arguments, keywords)
            for n, keyword in enumerate(keywords):
                if keyword.arg and not _is_kept(keyword):
                    yield ast.Call(function, arguments, [*keywords[:n], *keywords[n + 1 :]])
