"""The map of packages: what each is for, in the order in which they may import each other."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from reference.markdown import code, plain, table

ROOT = Path(__file__).parents[3]


def page() -> str:
    """Every package by its layer, from the contract that import-linter checks and from the packages' own words."""
    text = (
        "# Package map\n\n"
        "What every package is for, from the top layer down: a package imports only what stands below it. The order is"
        " the contract in `pyproject.toml`, which every test run checks; the sentences are those at the head of the"
        " packages. Folders have at most about twenty modules, and files fewer than 600 lines.\n\n"
    )
    for layer in layers():
        for name in (part.strip() for part in layer.split("|")):
            path = ROOT / "testbed" / name
            if path.is_dir():
                text += f"## {code(name)}\n\n{plain(first_words(path / '__init__.py'))}\n\n" + _modules(path)
            elif path.with_suffix(".py").is_file():
                text += f"## {code(name)}\n\n{plain(first_words(path.with_suffix('.py')))}\n\n"
    return text


def layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return layers


def _modules(package: Path) -> str:
    rows = []
    for folder in (package, *sorted(path for path in package.rglob("*") if path.is_dir())):
        modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
        if not modules:
            continue
        lines = sum(len(path.read_text().splitlines()) for path in folder.glob("*.py"))
        about = "" if folder == package else first_words(folder / "__init__.py")
        rows.append((code(f"{folder.relative_to(ROOT)}/"), str(len(modules)), f"{lines:,}", plain(about)))
    return table(("Folder", "Modules", "Lines", "What is in it"), rows)


def first_words(path: Path) -> str:
    """The first sentence or paragraph of a module's docstring; empty where it has none."""
    if not path.is_file():
        return ""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
