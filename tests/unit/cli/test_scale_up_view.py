"""`inspect scale-up`: figures in real and in lab units, each direction, and what `validate` adds to a lab's sizing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import TestbedError
from testbed.cli.app import app
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.lab.features.scale_up.apply import DomainState
from testbed.lab.features.scale_up.view import (
    scale_up_document,
    scale_up_rows,
    switch_document,
    switch_row,
    validated_rows,
)

TOPOLOGIES = Path(__file__).parents[3] / "topologies"


@pytest.fixture(autouse=True)
def _nothing_is_deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path))


def test_the_document_of_a_rack_has_real_units_and_those_of_the_lab() -> None:
    lab = load_topology(TOPOLOGIES / "nvl72.yml")
    document = scale_up_document(lab, 20_000)
    assert [(one["name"], one["gpus"]) for one in document["domains"]] == [("p1-s1", 72)]
    assert len(document["planes"]) == 18
    assert document["planes"][17] == {
        "plane": 18,
        "links_per_gpu": 1,
        "rate_bps": 400_000_000_000,
        "lab_rate_bps": 20_000_000,
    }
    assert (document["rho"], document["gpu_bdp_bytes"], document["link_bdp_bytes"]) == ([9.0], 900_000, 50_000)
    assert document["lab_units"]["gpu_rate_bps"] * 20_000 == document["gpu_rate_bps"]
    assert document["lab_units"]["rtt_ns"] == document["rtt_ns"] * 20_000
    assert json.loads(json.dumps(document)) == document
    without = scale_up_document(lab, None)
    assert (without["lab_units"], without["planes"][0]["lab_rate_bps"]) == (None, None)


def test_rows_tell_both_ways_of_counting_and_what_the_preset_leaves_to_the_link() -> None:
    text = "name: lab\nfabric: {design: rail-optimized, scale_up: {preset: h100, llr: {window: 50%}, rtt: 2us}}\n"
    rows = {row.what: row for row in scale_up_rows(load_topology_text(text, file="lab.yml"), 10_000)}
    assert (rows["rate of a GPU"].real, rows["rate of a GPU"].lab) == ("3.6 Tbit/s", "360 Mbit/s")
    assert "7.2 Tbit/s where both are counted" in rows["rate of a GPU"].note
    assert rows["rate of a GPU to a plane"].lab == "80 Mbit/s to 100 Mbit/s"
    assert rows["RTT, GPU to GPU"].lab == "20 ms"
    assert rows["BDP of a GPU"].real == rows["BDP of a GPU"].lab == "900 kB"
    assert rows["retry window of a link"].note.startswith("50% of what the link needs")
    assert rows["transfers by"].real == "time"


def test_what_is_switched_off_is_said_to_be() -> None:
    text = "name: lab\nfabric: {design: rail-optimized, scale_up: {preset: sue, flow_control: none, llr: off}}\n"
    rows = {row.what: row for row in scale_up_rows(load_topology_text(text, file="lab.yml"), None)}
    assert rows["flow control"].real == "none"
    assert rows["link-level retry"].real == "off"
    assert "credits of a channel" not in rows


def test_a_file_that_says_nothing_is_not_sized_and_says_so_where_it_is_asked() -> None:
    lab = load_topology(TOPOLOGIES / "demo.yml")
    assert validated_rows(lab) == []
    rows = {row.what: row for row in scale_up_rows(lab, None)}
    assert "the file says nothing" in rows["domains"].note
    assert "take none" in rows["RTT, GPU to GPU"].note


def test_validate_states_rho_the_direction_and_the_scale_that_packets_need() -> None:
    said = " ".join(row.note for row in validated_rows(load_topology(TOPOLOGIES / "nvl72-superpod.yml")))
    assert "each direction; rho 9, over 800 Gbit/s of NICs a GPU, like for like" in said
    assert "packets would need k = 10,000,000" in said
    assert "72 of 72 ports of a switch used" in said
    for k, words in ((50_000, "packets need k = 50,000"), (2_000, "packets need k = 50,000, more than 2,000")):
        lab = load_topology(TOPOLOGIES / "scale-up-domain.yml", overrides={"scale.time": k})
        assert validated_rows(lab)[-1].note.endswith(f"; by packets; {words}")
        assert scale_up_rows(lab, k)[-1].note.startswith(f"{words} (")


def test_the_verbs_print_it() -> None:
    file = str(TOPOLOGIES / "nvl72.yml")
    shown = CliRunner().invoke(app, ["inspect", "scale-up", "-t", file, "-f", "json"])
    assert json.loads(shown.stdout)["gpus"] == 72
    sized = json.loads(CliRunner().invoke(app, ["validate", "-t", file, "-f", "json"]).stdout)
    assert sized["scale_up"]["domain"] == "segment"
    plain = json.loads(CliRunner().invoke(app, ["validate", "-t", str(TOPOLOGIES / "demo.yml"), "-f", "json"]).stdout)
    assert "scale_up" not in plain


def test_a_lab_without_gpus_has_no_domain_to_show(tmp_path: Path) -> None:
    path = tmp_path / "switches.yml"
    path.write_text(
        "name: switches\ntopology:\n  kinds: {switch: {role: rail}}\n"
        "  nodes: {s1: {kind: switch}, s2: {kind: switch, role: spine}}\n"
        '  links: [{endpoints: ["s1:eth1", "s2:eth1"], rate: 400G}]\n'
    )
    failed = CliRunner().invoke(app, ["inspect", "scale-up", "-t", str(path)])
    assert isinstance(failed.exception, TestbedError)
    assert "no GPUs" in failed.exception.message


COUNTED = {
    "pid": 4711,
    "weaknesses": [],
    "up_ns": 10_000_000_000,
    "cpu_ns": 40_000_000,
    "frames": 12_345,
    "socket_drops": 0,
    "times": {"pass": {"p50_ns": 7_000, "p99_ns": 20_000}},
    "ports": [{}] * 32,
}


def state(**counted: object) -> DomainState:
    return DomainState(name="p1-s1", node="scaleup-p1-s1", gpus=8, planes=4, counted=counted)


def test_a_switch_says_how_it_does_and_a_dead_one_how_it_is_started_again() -> None:
    alive, dead = switch_row(state(**COUNTED)), switch_row(state())
    assert (alive.what, alive.lab, dead.lab) == ("switch of p1-s1", "runs", "does not run")
    for words in ("process 4711", "32 ports", "12345 frames", "0.4% of a core", "7 us at the median"):
        assert words in alive.note
    assert "lost by this machine" not in alive.note
    assert dead.note == "`testbed link up p1-s1:planes` starts it again"
    troubled = switch_row(state(**(COUNTED | {"socket_drops": 3, "weaknesses": ["no real-time priority"]})))
    assert "3 frames lost by this machine" in troubled.note and "no real-time priority" in troubled.note
    assert switch_document(state()) == {"domain": "p1-s1", "namespace": "scaleup-p1-s1", "running": False}
    assert "ports" not in switch_document(state(**COUNTED))
