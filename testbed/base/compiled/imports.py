"""The names that modules import, and the base classes of their classes, as their sources say: nothing is imported here.

Names are followed through modules that only pass them on, such as the `__init__` of a package, to the one that has
them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

PACKAGE = "testbed"
OPEN_CLASS = "mypyc_attr"
"""The mark of a compiled class that may have interpreted subclasses: `testbed.protocols.open_classes`."""
_OPENS = "allow_interpreted_subclasses"
_WHOLE = ""
"""In place of a name in a module: the module itself."""
_MOST_STEPS = 20
"""The most modules that a name is followed through."""


class Imports:
    """The imports of the sources below `root`. `compiled` are the names of the modules that are compiled."""

    def __init__(self, root: Path, compiled: Collection[str]) -> None:
        self._root = root
        self._compiled = frozenset(compiled)
        self._trees: dict[str, ast.Module | None] = {}
        self._names: dict[str, dict[str, tuple[str, str]]] = {}

    def needs(self, module: str) -> set[str]:
        """Return the compiled modules, other than itself, that a module has a name of: their constants may be in it."""
        found: set[str] = set()
        for of, name in self._imported(module).values():
            found |= self._origins(of, name)
        return found - {module}

    def bases(self, module: str) -> set[str]:
        """Return the compiled modules with a base class of a class of this module that only compiled classes have."""
        tree, found = self._tree(module), set()
        for node in ast.walk(tree) if tree is not None else ():
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                if (place := self._place(module, base)) is not None:
                    origins = self._origins(*place) - {module}
                    found |= {origin for origin in origins if not self._is_open(origin, place[1])}
        return found

    def layout(self, module: str) -> str:
        """Return the fields of the named tuples of a module: whoever reads one has their places in its own code."""
        tree = self._tree(module)
        return "" if tree is None else " ".join(_layouts(tree))

    def surroundings(self) -> str:
        """Return the constants and named tuples of modules that are not compiled and of which compiled ones have names.

        Both are in the code of those that were built, and nothing else says that they have changed.
        """
        found: set[str] = set()
        for module, name in self._surrounding():
            tree = self._tree(module)
            if tree is not None:
                found |= {f"{module} {text}" for text in _layouts(tree)}
                constants = filter(_is_constant, _assigned(tree, name))
                found |= {f"{module}.{name} {ast.dump(value)}" for value in constants}
        return "\n".join(sorted(found))

    def surrounding_files(self) -> list[str]:
        """Return the files that `surroundings` are in, relative to the root."""
        files = {file for module, _ in self._surrounding() if (file := self._file(module)) is not None}
        return sorted(str(file.relative_to(self._root)) for file in files)

    def _surrounding(self) -> Iterable[tuple[str, str]]:
        """The names that compiled modules have of others, each with the module that has it."""
        seen: dict[tuple[str, str], None] = {}
        for module in sorted(self._compiled):
            for place in self._imported(module).values():
                self._surround(*place, seen)
        return seen

    def _surround(self, module: str, name: str, seen: dict[tuple[str, str], None]) -> None:
        """Follow a name through modules that are not compiled, to where it is assigned."""
        if self._tree(f"{module}.{name}") is not None:
            module, name = f"{module}.{name}", _WHOLE
        tree = self._tree(module)
        if module in self._compiled or tree is None or (module, name) in seen:
            return
        seen[module, name] = None
        names = self._imported(module)
        if name in names:
            self._surround(*names[name], seen)
        for value in _constants(tree, name):
            if (place := self._place(module, value)) is not None:
                self._surround(*place, seen)

    def _is_open(self, module: str, name: str) -> bool:
        tree = self._tree(module)
        for node in tree.body if tree is not None else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                return any(_opens(decorator) for decorator in node.decorator_list)
        return False

    def _place(self, module: str, expression: ast.expr) -> tuple[str, str] | None:
        """The module and the name in it that an expression means where it is a name; None for any other."""
        if isinstance(expression, ast.Subscript):
            expression = expression.value
        names = self._imported(module)
        match expression:
            case ast.Name(id=name):
                return names.get(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in names:
                of, inner = names[name]
                return (f"{of}.{inner}" if inner else of), attribute
        return None

    def _origins(self, module: str, name: str, steps: int = 0) -> set[str]:
        """The compiled modules that a name of a module comes from."""
        if self._tree(f"{module}.{name}") is not None:
            module, name = f"{module}.{name}", _WHOLE
        if module in self._compiled:
            return {module}
        tree = self._tree(module)
        if tree is None or steps > _MOST_STEPS:
            return set()
        names = self._imported(module)
        followed = [names[name]] if name in names else []
        followed += [place for value in _constants(tree, name) if (place := self._place(module, value)) is not None]
        found: set[str] = set()
        for place in followed:
            found |= self._origins(*place, steps + 1)
        return found

    def _imported(self, module: str) -> dict[str, tuple[str, str]]:
        """By the name that it has in a module, what is imported of this project: the module, and the name in it."""
        if module not in self._names:
            tree = self._tree(module)
            found: dict[str, tuple[str, str]] = {}
            for node in ast.walk(tree) if tree is not None else ():
                match node:
                    case ast.ImportFrom(module=str(of), level=0) if of.split(".")[0] == PACKAGE:
                        found |= {alias.asname or alias.name: (of, alias.name) for alias in node.names}
                    case ast.Import():
                        found |= {
                            alias.asname or alias.name: (alias.name, _WHOLE)
                            for alias in node.names
                            if alias.name.split(".")[0] == PACKAGE
                        }
            self._names[module] = found
        return self._names[module]

    def _tree(self, module: str) -> ast.Module | None:
        """The source of a module, parsed; None where there is none, or none that can be parsed."""
        if module not in self._trees:
            file = self._file(module)
            try:
                self._trees[module] = None if file is None else ast.parse(file.read_bytes())
            except SyntaxError:
                self._trees[module] = None
        return self._trees[module]

    def _file(self, module: str) -> Path | None:
        path = self._root / module.replace(".", "/")
        return next(
            (file for file in (path.with_name(f"{path.name}.py"), path / "__init__.py") if file.is_file()), None
        )


def _constants(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """Yield the names that a constant of a module is computed of where a compiler may do that: `A: Final = 2 * B`."""
    for value in _assigned(tree, name):
        if _is_constant(value):
            yield from (part for part in ast.walk(value) if isinstance(part, ast.Name | ast.Attribute))


def _assigned(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """Yield what is assigned to a name of a module; of the module itself (`m.A`) what is to any."""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                pass
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                pass
            case _:
                continue
        if name in (target, _WHOLE):
            yield value


def _layouts(tree: ast.Module) -> Iterator[str]:
    """Yield the fields of each named tuple of a module."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or "NamedTuple" not in map(ast.unparse, node.bases):
            continue
        targets = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
        yield f"{node.name}({', '.join(map(ast.unparse, targets))})"


def _is_constant(value: ast.expr) -> bool:
    """Tell whether a compiler may compute an expression, and have what it is in the code of others."""
    return all(map(_is_folded, ast.walk(value)))


def _is_folded(part: ast.AST) -> bool:
    """Tell whether a compiler may compute an expression with such a part: an attribute is one of a module."""
    if isinstance(part, ast.Attribute):
        return isinstance(part.value, ast.Name)
    folded = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
    return isinstance(part, folded)


def _opens(decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=ast.Name(id=name), keywords=keywords) if name == OPEN_CLASS:
            return any(
                one.arg == _OPENS and isinstance(one.value, ast.Constant) and one.value.value is True
                for one in keywords
            )
    return False
