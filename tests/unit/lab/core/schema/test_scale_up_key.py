"""`fabric.scale_up`: presets, what changes them, and domains that are written out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.errors import SpecError
from testbed.base.units import ByteCount, Duration, Rate
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.model import (
    SCALE_UP_PRESETS,
    UNSTATED_SCALE_UP,
    Credits,
    DomainSpan,
    Lab,
    LinkRetry,
    NodeKind,
    PlaneSpray,
    ScaleUp,
    ScaleUpBy,
    ScaleUpFlowControl,
)
from testbed.lab.core.schema.load import load_topology_text


def load(text: str) -> Lab:
    body = f"name: lab\nfabric:\n  design: rail-optimized\n  hosts: 2\n{text}"
    return load_topology_text(body, file="lab.yml")


def scale_up(inside: str) -> ScaleUp:
    return load(f"  scale_up: {inside}\n").scale_up


def test_a_file_that_says_nothing_has_what_labs_had_before() -> None:
    assert load("").scale_up == UNSTATED_SCALE_UP


@pytest.mark.parametrize("name", SCALE_UP_PRESETS)
def test_a_preset_is_as_it_is(name: str) -> None:
    lab = load(f"  scale_up: {{preset: {name}}}\n")
    assert lab.scale_up == SCALE_UP_PRESETS[name]
    assert decode_lab(json.loads(json.dumps(encode_lab(lab)))) == lab


def test_keys_change_a_preset_one_by_one() -> None:
    changed = scale_up(
        "{preset: nvl72, domain: host, rate: 1.8T, rtt: 2us, flow_control: credits, vcs: 4,"
        " credits: {unit: 64B, limit: 900}, llr: {window: 50%, timer: 2.5windows, replays: 7}, coarse: 8, by: time}"
    )
    assert changed == replace(
        SCALE_UP_PRESETS["nvl72"],
        domain=DomainSpan.HOST,
        rate=Rate.parse("1.8T"),
        rtt=Duration.parse("2us"),
        vcs=4,
        credits=Credits(unit=ByteCount(64), limit=900),
        retry=LinkRetry(round_trips=0.5, timer_windows=2.5, replays=7),
        coarse=8,
    )


def test_a_domain_is_written_out_without_a_preset() -> None:
    written = scale_up("{rate: 1T, shares: [2, 1, 1], flow_control: none, llr: off}")
    assert (written.preset, written.shares, written.links, written.planes) == ("", (2, 1, 1), 4, 3)
    assert [written.plane_rate(plane) for plane in (1, 2, 3)] == [Rate.parse(rate) for rate in ("500G", "250G", "250G")]
    assert written.flow_control is ScaleUpFlowControl.NONE
    assert written.retry is None
    assert written.switch_ports is None
    assert scale_up("{rate: 1T, planes: 4}").shares == (1, 1, 1, 1)


def test_automatic_is_what_is_left_out() -> None:
    assert scale_up("{preset: sue, llr: auto, credits: {limit: auto}}") == SCALE_UP_PRESETS["sue"]


@given(planes=st.integers(1, 18))
def test_links_are_spread_over_fewer_planes_as_evenly_as_can_be(planes: int) -> None:
    shares = scale_up(f"{{preset: nvl72, domain: host, switch_ports: 1000, planes: {planes}}}").shares
    assert (len(shares), sum(shares)) == (planes, 18)
    assert max(shares) - min(shares) <= 1


def test_an_override_of_the_command_line_changes_a_domain() -> None:
    text = "name: lab\nfabric:\n  design: rail-optimized\n  hosts: 2\n  scale_up: {preset: nvl72}\n"
    lab = load_topology_text(text, file="lab.yml", overrides={"fabric.scale_up.domain": "host"})
    assert set(lab.host_domains.values()) == {host.name for host in lab.hosts}


def test_what_packets_add() -> None:
    changed = scale_up(
        "{preset: h100, by: packets, voq: true, spray: equal, flow_control: pfc, buffer: 64KiB, xoff: 32KiB, xon: 8KiB,"
        " llr: {pcs_lost: 80windows}}"
    )
    assert changed == replace(
        SCALE_UP_PRESETS["h100"],
        by=ScaleUpBy.PACKETS,
        voq=True,
        spray=PlaneSpray.EQUAL,
        flow_control=ScaleUpFlowControl.PFC,
        buffer=ByteCount(65_536),
        xoff=ByteCount(32_768),
        xon=ByteCount(8_192),
        retry=LinkRetry(pcs_lost_windows=80),
    )


@pytest.mark.parametrize(("written", "period"), [("off", None), ("1ms", Duration.parse("1ms"))])
def test_lost_credits_come_back_after_a_while_or_never(written: str, period: Duration | None) -> None:
    changed = scale_up(f"{{preset: h100, llr: off, credits: {{cc_update: {written}}}}}")
    assert changed.credits == Credits(cc_update=period)


@pytest.mark.parametrize(
    ("inside", "code", "path", "words"),
    [
        ("vcs: 9", "scale-up-packets", "vcs", "at most 8 virtual channels, not 9"),
        ("rtt: 1ms, credits: {unit: 32B}", "scale-up-packets", "rtt", "a CF_Update tells 32,767 apart"),
        ("buffer: 64KiB", "contradiction", "buffer", "credits say how large a buffer is"),
        ("xon: 8KiB", "contradiction", "xon", "no pauses with flow_control: credits"),
        ("flow_control: pfc, xoff: 4KiB, xon: 8KiB", "contradiction", "xon", "above xoff"),
        ("flow_control: none, buffer: 512B", "scale-up-packets", "buffer", "never holds a frame"),
    ],
)
def test_what_packets_cannot_have(inside: str, code: str, path: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        scale_up(f"{{preset: h100, by: packets, {inside}}}")
    (problem,) = (one for one in caught.value.problems if one.path == f"fabric.scale_up.{path}")
    assert problem.code == code
    assert words in problem.message
    assert problem.position is not None


def test_gpus_of_containers_may_have_packets() -> None:
    inside = "  scale_up: {preset: h100, by: packets}\ntopology: {kinds: {host: {runtime: docker}}}\n"
    lab = load(inside)
    assert lab.scale_up is not None and lab.scale_up.by is ScaleUpBy.PACKETS
    assert {node.runtime for node in lab.nodes if node.kind is NodeKind.HOST} == {"docker"}
