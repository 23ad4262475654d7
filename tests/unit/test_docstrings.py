"""Docstrings are whole sentences, or name a thing: "What ...", "Of ...", "How ..." tell only who knows already."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import testbed

PACKAGE = Path(testbed.__file__).parent
RIDDLE = re.compile(r"(What|Of|Whether|Those|How|Where|The same|This is what)\b")


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, and of its classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for before, line in zip([None, *node.body], node.body, strict=False):
                match line:
                    case ast.Expr(value=ast.Constant(value=str(text))) if before is None or isinstance(
                        before, ast.Assign | ast.AnnAssign
                    ):
                        yield text


def test_docstrings_are_no_riddles() -> None:
    found = {
        str(path.relative_to(PACKAGE)): [text for text in docstrings(ast.parse(path.read_text())) if RIDDLE.match(text)]
        for path in PACKAGE.rglob("*.py")
    }
    assert {path: texts for path, texts in found.items() if texts} == {}
