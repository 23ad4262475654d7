"""The path of a value in a document: `topology.links[3].endpoints[0]`, and its parts as a tuple."""

from __future__ import annotations

import json
import re

Path = tuple[str | int, ...]
"""Keys (str) and list indexes (int, from 0) from the root down to a value."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_PART = re.compile(r'(?P<key>[^.\[\]"\s]+)|"(?P<quoted>(?:[^"\\]|\\.)*)"|\[(?P<index>[0-9]{1,6})\]')
_LONGEST_KEY = 60


def format_path(path: Path) -> str:
    """`("topology", "links", 3, "rate")` -> `topology.links[3].rate`. A key of other characters is quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = part if len(part) <= _LONGEST_KEY else part[:_LONGEST_KEY] + "..."
        text += ("." if text else "") + (key if _PLAIN_KEY.fullmatch(key) else json.dumps(key))
    return text


def parse_path(text: str) -> Path:
    """The inverse of `format_path`. Raises `ValueError` with a sentence fit for the user."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if parts and text[at] == ".":
            at += 1
        elif parts and text[at] != "[":
            break
        match = _PART.match(text, at)
        if match is None or (text[at - 1] == "." and match["index"] is not None):
            break
        if match["index"] is not None:
            parts.append(int(match["index"]))
        elif match["quoted"] is not None:
            parts.append(_unquote(match[0]))
        else:
            parts.append(match["key"])
        at = match.end()
        if at == len(text):
            return tuple(parts)
    raise ValueError(f"{quote(text)} is not a dotted key such as fabric.hosts or topology.links[0].rate")


def _unquote(text: str) -> str:
    try:
        return str(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{quote(text)} is not a quoted key") from error


def quote(value: object, longest: int = 50) -> str:
    """A value as a message shows it: on one line, printable, short."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case str():
            return repr(value if len(value) <= longest else value[:longest] + "...")
        case _:
            text = str(value)
            return text if len(text) <= longest else text[:longest] + "..."
