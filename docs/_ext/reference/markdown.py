"""Pieces of MyST text: words that must not be read as markup, code, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKUP = re.compile(r"([\\*_\[\]<>|~^{}$#])")


def plain(text: object) -> str:
    """Text in which only `code` in backticks is markup; a table's cell may hold it."""
    parts = " ".join(str(text).split()).split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner is itself
        return _MARKUP.sub(r"\\\1", "\\`".join(parts))
    return "`".join(
        part.replace("|", r"\|") if odd % 2 else _MARKUP.sub(r"\\\1", part) for odd, part in enumerate(parts)
    )


def code(text: object) -> str:
    """Text as code, in a table's cell too; empty for empty text."""
    shown = str(text).replace("|", r"\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`" if shown else ""


def codes(texts: Iterable[object]) -> str:
    return ", ".join(code(text) for text in texts)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are markup already. A column that has nothing in it is left out."""
    filled = list(rows)
    kept = [place for place in range(len(heads)) if any(row[place] for row in filled)]
    lines = [[row[place] for place in kept] for row in (heads, [":---"] * len(heads), *filled)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def sentence(text: str) -> str:
    """Text with a capital and a full stop, as a paragraph wants it; three dots at the end stand for more words."""
    words = " ".join(text.split())
    ended = words if words.endswith("...") else words.rstrip(".") + "."
    return ended[:1].upper() + ended[1:] if words.strip(".") else ""
