"""The reference says everything: every verb, option, key, metric, workload, design, shipped file and error code."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from testbed.base.error_codes import ERROR_CODES

ROOT = Path(__file__).parents[3]
TESTBED = ROOT / "testbed"
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
CODED = ("problem", "refusal", "_refuse", "_problem", "_once", "_add", "_fault", "_unknown", "stop", "add")
"""Functions that take the code of a problem by its place; all take it as `code=`."""
TAKERS = re.compile(rf"\bdef ({'|'.join(CODED)})\(")

pytest.importorskip("sphinx", reason="the documentation's packages are not installed: pip install testbed[docs]")


@pytest.fixture(scope="module")
def pages() -> Iterator[dict[str, str]]:
    """The text of every page of the reference."""
    sys.path.insert(0, str(ROOT / "docs/_ext"))
    try:
        import reference

        yield {name: page() for name, page in reference.PAGES.items()}
    finally:
        sys.path.remove(str(ROOT / "docs/_ext"))


def test_every_verb_and_option_is_described(pages: dict[str, str]) -> None:
    text = pages["commands"]
    for verb in ("deploy", "link set", "vm up", "results show", "run"):
        assert f"## `{verb}`\n" in text
    for option in ("`--reconfigure`", "`--node-filter`", "`--prove-scale`"):
        assert option in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [row for row in rows if not row[-1].strip(" |")] == []


def test_every_argument_says_what_it_is(pages: dict[str, str]) -> None:
    from reference.commands import _verbs

    from testbed.cli.app import app as program

    context = program.make_context("testbed", [], resilient_parsing=True)
    silent = [
        f"{name} {one.name}"
        for name, command, own in _verbs(program, context)
        for one in command.get_params(own)
        if one.name != "help" and not getattr(one, "help", None)
    ]
    assert silent == []


def test_no_words_are_lost(pages: dict[str, str]) -> None:
    """A list that is cut ends in three dots, and nothing that stood between two signs is gone."""
    lost = re.compile(r"[,(] ?\.(?!\.)(?=[ |\n]|$)|, ,| ,", re.MULTILINE)
    found = {
        name: lost.findall(re.sub(r"```.*?```|`[^`\n]*`", "code", text, flags=re.DOTALL))
        for name, text in pages.items()
    }
    assert {name: some for name, some in found.items() if some} == {}
    assert "backend, frontend, ..." in pages["commands"]


@pytest.mark.parametrize("kind", ["topology", "scenario"])
def test_every_key_is_there_and_described(kind: str, pages: dict[str, str]) -> None:
    from reference.command_line import json_of

    text = pages["topology-keys"] + pages["scenario-keys"] + pages["transports"] + pages["faults"] + pages["workloads"]
    schema = json_of("schema", kind)
    keys = [(name, _resolved(one, schema["$defs"])) for name, one in _keys(schema)]
    assert len(keys) > 100
    assert [name for name, one in keys if not one.get("description")] == []
    assert sorted({name for name, _ in keys if f"`{name}`" not in text and f".{name}`" not in text}) == []


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema with what it refers to; what it says itself counts."""
    if "$ref" not in schema:
        return schema
    return {**_resolved(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions), **schema}


def _keys(schema: Any) -> Iterator[tuple[str, Any]]:
    match schema:
        case dict():
            if isinstance(properties := schema.get("properties"), dict):
                yield from ((name, one) for name, one in properties.items() if isinstance(one, dict))
            for one in schema.values():
                yield from _keys(one)
        case list():
            for one in schema:
                yield from _keys(one)


@pytest.mark.parametrize(
    ("page", "verb", "key"),
    [("metrics", "metrics", "name"), ("workloads", "workloads", "kind"), ("designs", "generate", "design")],
)
def test_every_entry_of_a_catalogue_is_there(page: str, verb: str, key: str, pages: dict[str, str]) -> None:
    from reference.command_line import json_of

    names = [one[key] for one in json_of(verb, "-f", "json")]
    assert len(names) > 10
    assert [name for name in names if f"# `{name}`\n" not in pages[page]] == []


@pytest.mark.parametrize("folder", ["topologies", "scenarios"])
def test_every_shipped_file_is_there(folder: str, pages: dict[str, str]) -> None:
    names = [path.name for path in (ROOT / folder).glob("*.yml")]
    assert len(names) > 10
    assert [name for name in names if f"## `{name}`\n\n" not in pages[folder]] == []


@cache
def codes_in_the_code() -> set[str]:
    """Every text that is given as the code of a problem somewhere in the package, but in the console, which refuses its
    page (docs/internals/console.md)."""
    console = TESTBED / "api" / "console"
    texts = {path: path.read_text() for path in TESTBED.rglob("*.py") if not path.is_relative_to(console)}
    takers: dict[str, dict[str, set[int]]] = {_package(path): {} for path in texts}
    for path, text in texts.items():
        if TAKERS.search(text):
            _find_takers(ast.parse(text), takers[_package(path)])
    found: set[str] = set()
    for path, text in texts.items():
        called = takers[_package(path)]
        if re.search("|".join((r"\bcode\b", *(rf"\b{name}\(" for name in called))), text):
            found.update(_codes_of(ast.parse(text), called))
    return found


def _package(path: Path) -> str:
    """The rooms that read files together count as one."""
    room = path.relative_to(TESTBED).parts[0]
    return "files" if room in {"api", "base", "lab", "run"} else room


def _codes_of(module: ast.Module, takers: dict[str, set[int]]) -> Iterator[str]:
    for one in ast.walk(module):
        if isinstance(one, ast.FunctionDef):
            defaults = zip(one.args.kwonlyargs, one.args.kw_defaults, strict=True)
            yield from (text for a, value in defaults if a.arg == "code" and value for text in _texts(value, {}))
    for scope in (one for one in ast.walk(module) if isinstance(one, ast.FunctionDef | ast.Module)):
        given: list[ast.expr] = []
        for call in (one for one in ast.walk(scope) if isinstance(one, ast.Call)):
            function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            given += [keyword.value for keyword in call.keywords if keyword.arg == "code"]
            given += [call.args[place] for place in takers.get(function, ()) if place < len(call.args)]
        named = _texts_of_names(scope) if any(not isinstance(one, ast.Constant) for one in given) else {}
        yield from (text for one in given for text in _texts(one, named) if CODE.fullmatch(text))


def _find_takers(module: ast.Module, found: dict[str, set[int]]) -> None:
    """Note the place of the parameter `code: str` of each function of `CODED`, `self` not counted."""
    for one in ast.walk(module):
        if isinstance(one, ast.FunctionDef) and one.name in CODED:
            names = [argument.arg for argument in one.args.args if argument.arg not in ("self", "cls")]
            annotations = {argument.arg: argument.annotation for argument in one.args.args}
            if "code" in names and getattr(annotations["code"], "id", "") == "str":
                found.setdefault(one.name, set()).add(names.index("code"))


def _texts_of_names(scope: ast.AST) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in ast.walk(scope):
        if not isinstance(one, ast.Assign):
            continue
        for target in one.targets:
            pairs = [(target, one.value)]
            if isinstance(target, ast.Tuple) and isinstance(one.value, ast.Tuple):
                pairs = list(zip(target.elts, one.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    found.setdefault(name.id, set()).update(_texts(value, {}))
    return found


def _texts(value: ast.expr, named: dict[str, set[str]]) -> set[str]:
    match value:
        case ast.Constant(value=str() as text):
            return {text}
        case ast.IfExp():
            return _texts(value.body, named) | _texts(value.orelse, named)
        case ast.Name():
            return named.get(value.id, set())
    return set()


def codes_that_users_were_told() -> set[str]:
    """The codes in the texts that the corpora of bad files expect."""
    texts = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("bad*/*.txt"))
    return set(re.findall(r"^\S+?\.yml(?::\d+:\d+)?: ([a-z0-9-]+):", texts, re.MULTILINE))


KNOWN = {code for meanings in ERROR_CODES.values() for code in meanings}


def test_every_code_has_a_meaning() -> None:
    told = codes_that_users_were_told()
    written = codes_in_the_code()
    assert len(told) > 60 and len(written) > 100
    assert sorted((told | written) - KNOWN) == []


def test_no_meaning_is_of_a_code_that_is_gone() -> None:
    assert sorted(KNOWN - codes_that_users_were_told() - codes_in_the_code()) == []


def test_every_meaning_is_a_sentence_and_told_once() -> None:
    meanings = [text for some in ERROR_CODES.values() for text in some.values()]
    assert len(KNOWN) == len(meanings)
    assert [text for text in meanings if not re.fullmatch(r"[A-Z].+\.", text)] == []


def test_every_code_is_on_the_page_with_what_users_see(pages: dict[str, str]) -> None:
    sections = {part.partition("`\n")[0]: part for part in pages["errors"].split("\n### `")[1:]}
    assert set(sections) == KNOWN
    assert {code for code, text in sections.items() if "```text\n" in text} == codes_that_users_were_told()
