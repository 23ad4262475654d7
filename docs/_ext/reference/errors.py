"""Every stable code of a problem, with a message and a hint as a user gets them."""

from __future__ import annotations

import re
from pathlib import Path

from reference.markdown import code, plain
from testbed.base.error_codes import ERROR_CODES

ROOT = Path(__file__).parents[3]
_PROBLEM = re.compile(r"(?P<place>\S+?\.yml(:\d+:\d+)?): (?P<code>[a-z0-9-]+):( |$)")
_LONGEST = 400


def page() -> str:
    text = (
        "# Error codes\n\n"
        "Every problem of a file is told with the file, line and column, a code that stays the same from"
        " release to release, the key, what is wrong and, where one can be given, a hint. Below each code stands what"
        " one sees for it, taken from the files that the tests feed.\n\n"
    )
    examples = _examples()
    for subject, meanings in ERROR_CODES.items():
        text += f"## {plain(subject)}\n\n"
        for name, meaning in meanings.items():
            text += f"(error-{name})=\n### {code(name)}\n\n{plain(meaning)}\n\n"
            if example := examples.get(name):
                text += f"```text\n{example}\n```\n\n"
    return text


def _examples() -> dict[str, str]:
    """The shortest message with each code in the corpora of bad files."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("bad*/*.txt")):
        for problem in _problems(path.read_text()):
            match = _PROBLEM.match(problem)
            assert match is not None
            known = found.get(match["code"])
            if len(problem) <= _LONGEST and (known is None or len(problem) < len(known)):
                found[match["code"]] = problem
    return found


def _problems(text: str) -> list[str]:
    """The problems of a message, each with its hint."""
    problems: list[str] = []
    for line in text.splitlines():
        if _PROBLEM.match(line):
            problems.append(line)
        elif problems and line.startswith("    "):
            problems[-1] += f"\n{line}"
    return problems
