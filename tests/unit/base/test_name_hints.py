"""What a user may have meant by a name that is not there."""

import pytest

from testbed.base.names import all_names_hint, choice_hint, known_names_hint, meant_names

NODES = [f"p1-s{segment}-h{host}" for segment in (1, 2) for host in (1, 2, 3)] + ["p1-spine1", "mgmt1"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [("h1", ["p1-s1-h1", "p1-s2-h1"]), ("s2-h3", ["p1-s2-h3"]), ("p1-spine2", ["p1-spine1"]), ("eth0", []), ("", [])],
)
def test_what_may_be_meant(word: str, meant: list[str]) -> None:
    assert meant_names(word, NODES)[: len(meant) or None] == meant


def test_a_hint_asks_and_lists() -> None:
    assert all_names_hint("h1", NODES[:2]) == "did you mean p1-s1-h1? there are p1-s1-h1 and p1-s1-h2"
    said = all_names_hint("h1", NODES * 2)
    assert said.startswith("did you mean p1-s1-h1, p1-s2-h1 or p1-s1-h1? there are p1-s1-h1, p1-s1-h2,")
    assert said.endswith("mgmt1 and 8 more")
    assert all_names_hint("eth0", ["a:b"]) == "there is a:b"
    assert all_names_hint("h1", []) is None


def test_a_word_of_a_few() -> None:
    assert choice_hint("lniks", ["bgp", "links"]) == "did you mean links?"
    assert choice_hint("x", ["bgp", "links"]) == "one of bgp, links"
    assert choice_hint("x", ["bgp"], "`testbed inspect` lists them") == "`testbed inspect` lists them"
    assert choice_hint("x", []) is None
    assert known_names_hint("x", ["backend"]) == "there is backend"
    assert known_names_hint("x", ["backend", "frontend"]) == "there are backend, frontend"
