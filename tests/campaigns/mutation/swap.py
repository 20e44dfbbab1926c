"""Puts a mutant in the place of the code that a process has already imported."""

from __future__ import annotations
import __future__

import ast
import functools
import gc
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.campaigns.mutation.mutants import Mutant, first_line, mutated

# Statements are compiled as in their module, where annotations are never evaluated.
_ANNOTATIONS = __future__.annotations.compiler_flag

_Cached = type(functools.cache(len))

# The file, name and first line of a function.
_Where = tuple[str, str, int]


class ImportFailsError(Exception):
    """A mutant cannot be imported, which any test notices."""


class Live:
    """The modules of a process and their functions, of which others may have references."""

    def __init__(self, paths: set[Path]) -> None:
        files = {str(path) for path in paths}
        self._modules: dict[Path, ModuleType] = {}
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if file in files:
                self._modules[Path(file)] = module
        names = {module.__name__ for module in self._modules.values()}
        self._functions: dict[_Where, list[FunctionType]] = defaultdict(list)
        self._caches: list[Any] = []
        for each in gc.get_objects():
            if type(each) is _Cached and getattr(each, "__module__", "") in names:
                self._caches.append(each)
            if type(each) is FunctionType and each.__code__.co_filename in files:
                code = each.__code__
                where = (code.co_filename, code.co_name, code.co_firstlineno)
                self._functions[where].append(each)

    def is_imported(self, path: Path) -> bool:
        """Whether the process has imported a module."""
        return path in self._modules

    def forget(self) -> None:
        """Empties the caches of functions, so that the next test reaches them."""
        for cache in self._caches:
            cache.cache_clear()

    def swap(self, mutant: Mutant) -> None:
        """Changes the process for good: all references lead to the mutant."""
        tree, statement = mutated(mutant)
        if mutant.function:
            self._swap_code(mutant, tree)
        elif isinstance(statement, ast.FunctionDef):
            self._swap_defaults(mutant.path, statement)
        elif isinstance(statement, ast.ClassDef):
            self._swap_class(mutant.path, statement)
        else:
            self._swap_value(mutant.path, tree, statement)

    def _swap_code(self, mutant: Mutant, tree: ast.Module) -> None:
        assert mutant.function
        name, line = mutant.function
        functions = self._functions[str(mutant.path), name, line]
        assert functions, "the function is not alive"
        if functions[0].__code__.co_freevars == ("__class__",):
            # A method keeps its reference to the class, whether or not it still calls super().
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and first_line(node) == line:
                    node.body.append(ast.If(ast.Constant(False), ast.parse("__class__").body, []))
            ast.fix_missing_locations(tree)
        module = compile(tree, str(mutant.path), "exec")
        (code,) = (c for c in _codes(module) if (c.co_name, c.co_firstlineno) == (name, line))
        for function in functions:
            function.__code__ = code

    def _evaluated(self, path: Path, statement: ast.stmt) -> dict[str, Any]:
        """The names that a statement of a module binds, evaluated among the others."""
        names = dict(vars(self._modules[path]))
        code = compile(ast.Module([statement], []), str(path), "exec", _ANNOTATIONS)
        try:
            exec(code, names)
        except Exception as error:
            raise ImportFailsError(f"{path}: {error!r}") from error
        before = vars(self._modules[path])
        return {
            name: value
            for name, value in names.items()
            if name != "__builtins__" and value is not before.get(name)
        }

    def _swap_defaults(self, path: Path, statement: ast.FunctionDef) -> None:
        line = first_line(statement)
        statement.decorator_list = []
        (new,) = self._evaluated(path, statement).values()
        for function in self._functions[str(path), statement.name, line]:
            _take_defaults(function, new)

    def _swap_class(self, path: Path, statement: ast.ClassDef) -> None:
        new = self._evaluated(path, statement)[statement.name]
        old = getattr(self._modules[path], statement.name)
        for name, value in vars(new).items():
            before = vars(old).get(name)
            value, before = getattr(value, "__func__", value), getattr(before, "__func__", before)
            if isinstance(value, FunctionType) and isinstance(before, FunctionType):
                _take_defaults(before, value)
            elif type(value) in (int, float, bool, str, bytes, tuple) and name[:2] != "__":
                setattr(old, name, value)

    def _swap_value(self, path: Path, tree: ast.Module, statement: ast.stmt) -> None:
        """Changes a name of a module, those that follow from it, and imports of them elsewhere."""
        module = self._modules[path]
        changed: dict[str, Any] = {}
        for later in tree.body[tree.body.index(statement) :]:
            if not isinstance(later, (ast.Assign, ast.AnnAssign)):
                continue
            used = {node.id for node in ast.walk(later) if isinstance(node, ast.Name)}
            if later is not statement and not used & set(changed):
                continue
            for name, value in self._evaluated(path, later).items():
                changed.setdefault(name, getattr(module, name))
                old = changed[name]
                for other in list(sys.modules.values()):
                    package = getattr(other, "__name__", "").split(".")[0]
                    ours = other is module or package in ("beam_jobs", "readers", "tests")
                    if ours and vars(other).get(name, self) is old:
                        setattr(other, name, value)


def _take_defaults(old: FunctionType, new: FunctionType) -> None:
    old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__


def _codes(code: CodeType) -> list[CodeType]:
    """A code object and all that are in it."""
    inside = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(deeper for each in inside for deeper in _codes(each))]
