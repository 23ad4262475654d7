"""The verb `launch`: what it makes of its options, and the tables that it ends with."""

import json
from dataclasses import replace
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.cli.app import exit_code
from testbed.cli.nodes import launch as verb
from testbed.cli.nodes.launch_tables import UplinksRow, print_result, rail_rows, uplink_rows
from testbed.cli.options import Format
from testbed.run.launch.options import LaunchOptions, LaunchOrder
from testbed.run.launch.ranks import place_ranks
from testbed.run.launch.result import LaunchResult, RankEnd, RankLine
from testbed.run.launch.traffic import PortTraffic


def port(node: str, interface: str, sent: int, received: int = 0, **more: Any) -> PortTraffic:
    given: dict[str, Any] = {"tx_share": 0.0, "rx_share": 0.0, "dropped_packets": 0, "marked_packets": None}
    peer = f"p1-spine{interface[-1]}:down1"
    return PortTraffic(node=node, interface=interface, peer=peer, tx_bytes=sent, rx_bytes=received, **(given | more))


NICS = (port("h1", "rail1", 1_000_000, 900_000), port("h2", "rail1", 500_000, dropped_packets=2))
UPLINKS = (
    port("leaf1", "uplink1", 3_000_000, 10, tx_share=2.0, rx_share=1.0, marked_packets=5),
    port("leaf1", "uplink2", 0, 10, rx_share=1.0, marked_packets=0, dropped_packets=1),
    port("leaf2", "uplink1", 0),
)


def result(**more: Any) -> LaunchResult:
    lab, plan = small_lab(rails=2, spines=2)
    places = place_ranks(lab, plan, LaunchOptions())
    ends = [RankEnd(rank=each.rank, host=each.host, status=0, started_s=5.0, ended_s=7.0) for each in places]
    found = LaunchResult(
        lab="fake",
        k=20000.0,
        places=places,
        ranks=tuple(ends),
        exit_code=0,
        failure="",
        started_s=4.75,
        ended_s=7.0,
        nics=NICS,
        uplinks=UPLINKS,
        sent_again=3,
        congestion_control="cubic",
        transport="tcp",
    )
    return replace(found, **more)


def test_the_nics_of_a_rail_are_added_up() -> None:
    (row,) = rail_rows(NICS)
    assert (row.rail, row.nics, row.sent, row.received, row.dropped) == ("rail1", 2, "1.50 MB", "900 kB", 2)


def test_an_uplink_that_has_more_than_its_share_is_named_and_an_idle_switch_is_not_shown() -> None:
    assert uplink_rows(UPLINKS) == [
        UplinksRow(
            switch="leaf1",
            uplinks=2,
            sent="3.00 MB",
            sent_share=2.0,
            busiest="uplink1 to p1-spine1",
            received="20 B",
            received_share=1.0,
            most_received="",
            marked=5,
            dropped=1,
        )
    ]


def test_people_get_tables_and_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(), Format.TABLE)
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split() == ["rail", "nics", "sent", "received", "dropped"]
    assert "max/mean" in said.out and "uplink1 to p1-spine1" in said.out
    assert said.err == (
        "4 ranks on 4 hosts, 2.25 s of lab time at k = 20000: 1.50 MB sent by their NICs over tcp (cubic),"
        " 3 packets sent again\n"
    )


def test_a_program_that_stayed_off_the_fabric_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(nics=(port("h1", "rail1", 0),), uplinks=()), Format.TABLE)
    assert "warning: the ranks are on several hosts, and no byte of them crossed a rail" in capsys.readouterr().err


def test_programs_get_a_document_or_a_line_for_each_port(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(), Format.JSON)
    document = json.loads(capsys.readouterr().out)
    assert document["rail_bytes"] == 1_500_000 and document["sent_again"] == 3
    assert document["ranks"][1] == {
        "rank": 1,
        "host": "p1-s1-h2",
        "nic": "rail1",
        "address": "10.1.1.2",
        "status": 0,
        "reason": "",
        "started_s": 0.25,
        "ended_s": 2.25,
    }
    print_result(result(), Format.CSV)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("node,interface,peer,tx_bytes,rx_bytes") and len(lines) == 1 + 5


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, LaunchOptions]]:
    """The commands and options of launches, none of which starts anything."""
    found: list[tuple[Any, LaunchOptions]] = []

    def note(lab: Any, command: Any, options: LaunchOptions, **how: Any) -> LaunchResult:
        found.append((command, options))
        how["on_line"](RankLine(2, "a line", False, 1.0))
        how["on_line"](RankLine(3, "of trouble", True, 1.0))
        return result(exit_code=9, failure="rank 2 on p1-s2-h1 ended with 9")

    monkeypatch.setattr("testbed.run.launch.launcher.launch_ranks", note)
    monkeypatch.setattr("testbed.cli.lab_choice.open_lab", lambda name: name)
    return found


def test_options_before_the_command_are_ours_and_those_behind_it_its_own(
    launched: list[tuple[Any, LaunchOptions]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HANDED_ON", "yes")
    words = "launch -n demo --ranks-per-host 2 --hosts a,b --order list --transport uet --pmi --cc bbr --timeout 10m"
    given = [*words.split(), "--env", "A=b=c", "--env", "HANDED_ON", "prog", "--pmi", "-n", "4"]
    assert exit_code(given) == 9
    ((command, options),) = launched
    assert command == ("prog", "--pmi", "-n", "4")
    assert options == LaunchOptions(
        hosts=("a", "b"),
        ranks_per_host=2,
        order=LaunchOrder.LIST,
        transport="uet",
        pmi=True,
        env={"A": "b=c", "HANDED_ON": "yes"},
        cc="bbr",
        timeout_s=600.0,
    )
    said = capsys.readouterr()
    assert said.out.startswith("[2] a line\n") and said.err.startswith("[3] of trouble\n")
    assert "error: rank 2 on p1-s2-h1 ended with 9\n" in said.err


def test_two_dashes_begin_the_command(launched: list[tuple[Any, LaunchOptions]]) -> None:
    exit_code(["launch", "--per-gpu", "--", "--odd", "x"])
    ((command, options),) = launched
    assert command == ("--odd", "x") and options == LaunchOptions(per_gpu=True)


def test_json_is_json_alone(launched: list[tuple[Any, LaunchOptions]], capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(["launch", "-f", "json", "true"])
    said = capsys.readouterr()
    assert json.loads(said.out)["exit_code"] == 9
    assert "[2] a line\n" in said.err and launched


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--per-gpu", "--ranks-per-host", "2", "x"], "--per-gpu says how many ranks a host has"),
        (["--order", "rows", "x"], "--order rows: expected rack, interleave, list"),
        (["--env", "NOT_SET_HERE", "x"], "--env NOT_SET_HERE: expected KEY=VALUE"),
        (["--env", "=x", "x"], "--env =x: expected KEY=VALUE"),
        (["--timeout", "soon", "x"], "--timeout soon: not a span of time"),
        (["--timeout", "0s", "x"], "--timeout 0s: expected more than nothing"),
    ],
)
def test_a_slip_of_the_keyboard_starts_nothing(
    words: list[str], says: str, launched: list[tuple[Any, LaunchOptions]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["launch", *words]) == 3
    assert says in capsys.readouterr().err and launched == []


def test_there_is_no_launch_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["launch"]) == 3
    assert "-- CMD..." in capsys.readouterr().err
    assert verb.launch.codes[125].startswith("what ranks depend on")
