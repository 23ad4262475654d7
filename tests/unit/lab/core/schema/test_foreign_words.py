"""Files of containerlab and netlab: each of their words gets what to write instead, once, and that is right."""

import re
from collections.abc import Iterator

import pytest

from testbed.base.errors import Problem, SpecError
from testbed.lab.core.schema import foreign
from testbed.lab.core.schema.load import load_topology_text

NODES = "nodes: {leaf1: {kind: switch, role: rail}, h1: {kind: host}}"
LINK = 'endpoints: ["leaf1:eth1", "h1:eth1"]'


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        load_topology_text(text, file="lab.clab.yml")
    return caught.value.problems


def lab(node: str = "", link: str = "", file: str = "", kinds: str = "{}") -> str:
    return (
        f"name: lab\n{file}\ntopology:\n  kinds: {kinds}\n"
        f"  nodes: {{leaf1: {{kind: switch, role: rail}}, h1: {{kind: host{node}}}}}\n  links: [{{{LINK}{link}}}]\n"
    )


def hints_of(table: foreign.Hints) -> Iterator[tuple[str, str, str]]:
    """Each word, a value and what is to be written instead."""
    for word, hint in table.items():
        if isinstance(hint, str):
            yield word, "x", hint
        else:
            yield from ((word, value or "x", one) for value, one in hint.items())


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        *((lab(file=f'"{word}": {value}'), f'{word}"', hint) for word, value, hint in hints_of(foreign.FILE_KEYS)),
        *((lab(node=f', "{word}": {value}'), f"h1.{word}", hint) for word, value, hint in hints_of(foreign.NODE_KEYS)),
        *((lab(link=f", {word}: {value}"), f"[0].{word}", hint) for word, value, hint in hints_of(foreign.LINK_KEYS)),
        *((lab(kinds=f"{{{word}: }}"), f"kinds.{word}", hint) for word, _, hint in hints_of(foreign.KIND_SECTIONS)),
        *((lab(node=f", device: {word}"), "h1.device", foreign.NODE_KEYS["device"]) for word in ("frr", "eos")),
    ],
)
def test_a_key_says_what_to_write_instead(text: str, place: str, hint: str) -> None:
    (problem,) = problems(text)
    assert problem.code == "unknown-key"
    assert problem.position is not None
    assert problem.path.strip('"').endswith(place.strip('"'))
    assert problem.hint == hint


@pytest.mark.parametrize("kind", [kind for kind in foreign.KINDS if kind != "host"])
def test_a_kind_says_what_to_write_instead(kind: str) -> None:
    (problem,) = problems(lab().replace("kind: host", f"kind: {kind}"))
    assert (problem.code, problem.hint) == ("unknown-kind", foreign.KINDS[kind])


@pytest.mark.parametrize("end", foreign.ENDS)
def test_an_end_outside_of_the_lab_says_what_to_write_instead(end: str) -> None:
    found = problems(lab().replace('"h1:eth1"', f'"{end}:ens3"'))
    assert ("unknown-node", foreign.ENDS[end]) in [(problem.code, problem.hint) for problem in found]


def test_no_hint_is_so_long_that_it_is_said_only_once() -> None:
    tables = (
        foreign.FILE_KEYS,
        foreign.NODE_KEYS,
        foreign.LINK_KEYS,
        foreign.KIND_SECTIONS,
        foreign.KINDS,
        foreign.ENDS,
    )
    longest = max((hint for table in tables for _, _, hint in hints_of(table)), key=len)
    assert len(longest) <= 120, longest


def test_a_word_is_told_once_and_no_limit_hides_one() -> None:
    nodes = "\n".join(f"    Leaf_{number}: {{kind: ceos, mgmt-ipv4: 192.0.2.{number}}}" for number in range(1, 41))
    ours = "    spine: {kind: switch, role: spine}"
    found = problems(f"name: lab\ntopology:\n  nodes:\n{nodes}\n{ours}\n")
    assert [problem.code for problem in found].count("bad-name") == 40
    assert [problem.code for problem in found].count("unknown-kind") == 1
    assert [problem.code for problem in found].count("unknown-key") == 1
    assert found[0].hint == "write leaf-1, wherever it is named"
    kind = next(problem for problem in found if problem.code == "unknown-kind")
    assert kind.message.endswith("(also in lines 5, 6, 7, 8, 9, 10, 11, 12, ...)")
    assert "more-problems" not in {problem.code for problem in found}


def test_names_of_ports_and_extended_links_are_rewritten() -> None:
    text = lab().replace(LINK, 'endpoints: [{node: leaf1, interface: eth1}, "h1:Ethernet-1/1"]')
    assert [problem.hint for problem in problems(text)] == [
        'write "leaf1:eth1"',
        "write ethernet-1-1, wherever it is named",
    ]
    (problem,) = problems(lab().replace("h1:eth1", "h1:GigabitEthernet0/0/1"))
    assert problem.hint == "write gigabiteth0-0-1, wherever it is named"


def test_the_sections_that_hints_name_are_right() -> None:
    """What is written out in braces loads."""
    for section in ("networks", "fabric"):
        written = {
            match[0]
            for table in (foreign.FILE_KEYS, foreign.NODE_KEYS, foreign.LINK_KEYS)
            for _, _, hint in hints_of(table)
            for match in re.finditer(rf"{section}: \{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}", hint)
        }
        assert len(written) >= 2
        for one in written:
            if "design: rail-optimized" in one:
                text = f"name: lab\n{one}\n"
            elif "homing" in one:
                continue  # of a network with leaves, which a test of that key has
            else:
                text = lab(file=one.replace("NAME: {", "storage: {leaves: 1, ") if "NAME" in one else one)
            load_topology_text(text, file="lab.yml")
