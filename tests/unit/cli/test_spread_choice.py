"""Which lab over several machines a command line means, and which verbs run here all the same."""

from pathlib import Path

import pytest

from testbed.api.pool.over.records import SpreadMachine, SpreadRecord, SpreadRecords, SpreadState
from testbed.base.errors import TestbedError
from testbed.cli.machine.over import run_over, spread_named, words_for

RECORD = SpreadRecord(
    name="wide",
    state=SpreadState.RUNNING,
    created="2026-11-29T12:00:00+00:00",
    source="wide.yml",
    design="rail-optimized",
    machines=(SpreadMachine(name="a", ssh="root@a"), SpreadMachine(name="b", ssh="root@b")),
    places={"h1": "a", "h2": "b"},
    hosts=2,
    switches=0,
    links=1,
    cut_links=1,
)


@pytest.fixture(autouse=True)
def only_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))
    SpreadRecords().write(RECORD)


@pytest.mark.parametrize(
    "words",
    [
        ["exec", "h1", "--", "ls", "-t"],
        ["exec", "h1", "--", "ping", "-n", "h2"],
        ["check", "-n", "wide"],
        ["check", "--name=wide"],
        ["stats", "-nwide"],
        ["stats"],
    ],
)
def test_the_only_lab_is_meant_and_the_words_of_a_program_say_nothing(words: list[str]) -> None:
    assert spread_named(words) == RECORD


@pytest.mark.parametrize("words", [["apply", "-t", "x.yml"], ["apply", "-tx.yml"], ["apply", "--topology=x.yml"]])
def test_a_file_that_is_named_says_which_lab_is_meant(words: list[str]) -> None:
    assert spread_named(words) is None


@pytest.mark.parametrize(
    "words",
    [
        ["export", "results/x/record.json"],
        ["export", "-t", "x.yml", "-n", "wide", "--to", "netlab"],
        ["console", "results/x"],
        ["graph"],
        ["graph", "-t", "x.yml", "-n", "wide"],
        ["validate"],
        ["check"],
    ],
)
def test_verbs_about_files_and_results_run_here(words: list[str]) -> None:
    assert run_over(words) is None


@pytest.mark.parametrize("words", [["apply"], ["graph", "-n", "wide"], ["trace", "h1", "h2"]])
def test_a_verb_that_such_a_lab_does_not_have_is_refused_with_what_helps(words: list[str]) -> None:
    with pytest.raises(TestbedError, match="does not know labs over several machines") as refused:
        run_over(words)
    assert refused.value.hint is not None and "--on ssh://root@a" in refused.value.hint


@pytest.mark.parametrize(
    ("words", "a", "b"),
    [
        ("stats", "stats", "stats"),
        ("stats h1", "stats h1", None),
        ("stats h1:eth1 h2 2s -f json", "stats h1:eth1 2s -f json", "stats h2 2s -f json"),
        ("stats h*", "stats h*", "stats h*"),
        ("stats nobody -n wide", "stats nobody -n wide", "stats nobody -n wide"),
    ],
)
def test_a_machine_is_asked_about_nodes_that_it_has(words: str, a: str, b: str | None) -> None:
    for machine, expected in (("a", a), ("b", b)):
        assert words_for(RECORD, machine, words.split()) == (None if expected is None else expected.split())


def test_a_view_without_an_end_is_refused() -> None:
    with pytest.raises(TestbedError, match="--watch is not for labs over several machines"):
        run_over(["stats", "--watch"])
