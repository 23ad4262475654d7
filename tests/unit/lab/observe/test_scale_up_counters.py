"""Counters of scale-up links: their names, spans of time, sums that must hold, and their series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from testbed.daemons.switchd.errors import SwitchMissing
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.scale_up.counters import reading
from testbed.lab.features.scale_up.counters.balance import balance_domains
from testbed.lab.features.scale_up.counters.names import LINK_COUNTERS
from testbed.lab.features.scale_up.counters.reading import DomainReading, read_domains
from testbed.lab.observe.lab_reader import LabReading
from testbed.lab.observe.openmetrics import render_metrics
from testbed.protocols.scale_up.domain.binding import LinkCounters, VcCounters
from testbed.protocols.scale_up.domain.link import LinkErrors
from testbed.protocols.scale_up.native import NativeRetryReceiverCounters, NativeRetrySenderCounters

TOPOLOGY = Path(__file__).parents[4] / "topologies" / "scale-up-domain.yml"
GPUS, PLANES = 8, 4
Port = dict[str, Any]


def names_of(*structures: Any) -> list[str]:
    return [item[0] for structure in structures for item in structure._fields_]


def status() -> dict[str, Any]:
    """What a switch says that has seen nothing, with every field that it has."""
    return {
        "pid": 4711,
        "frames": 0,
        "socket_drops": 0,
        "times": {"lateness": {"p999_ns": 12}},
        "ports": [
            {
                "gpu": gpu,
                "plane": plane,
                **dict.fromkeys(names_of(LinkCounters), 0),
                "retry": dict.fromkeys(names_of(NativeRetrySenderCounters, NativeRetryReceiverCounters), 0),
                "vcs": [dict.fromkeys(names_of(VcCounters), 0) for _ in range(2)],
                "errors": asdict(LinkErrors()),
            }
            for plane in range(PLANES)
            for gpu in range(GPUS)
        ],
    }


def carry(said: dict[str, Any], plane: int, source: int, target: int, frames: int) -> None:
    """Frames of 4,134 bytes from a GPU to another one by a plane (from 0), of five credits each."""
    inward = said["ports"][plane * GPUS + source]["vcs"][0]
    outward = said["ports"][plane * GPUS + target]["vcs"][0]
    for vc, way in ((inward, "rx"), (outward, "tx")):
        vc[f"{way}_frames"] += frames
        vc[f"{way}_bytes"] += 4134 * frames
    for vc, side in ((inward, "r"), (outward, "s")):
        for name in (f"{side}_cc", f"{side}_cf"):
            vc[name] = (vc[name] + 5 * frames) % (1 << 20)
    said["frames"] += frames


class Lab:
    name = "scale-up-domain"

    def __init__(self) -> None:
        self.model = load_topology(TOPOLOGY, overrides={})
        self.plan = plan_lab(self.model, slot=1, k=50_000.0)
        self.state = self

    @property
    def whole(self) -> Lab:
        return self

    def run_directory(self, name: str) -> Path:
        return Path("/nowhere")


LAB = Lab()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any] | None], DomainReading]:
    """Read a domain whose switch says this; None: it does not run."""

    class Switch:
        said: dict[str, Any] | None = None

        def status(self) -> dict[str, Any]:
            if self.said is None:
                raise SwitchMissing("no switch answers")
            return self.said

    switch = Switch()
    monkeypatch.setattr(reading, "domain_switch", lambda run, domain: switch)

    def reader(said: dict[str, Any] | None) -> DomainReading:
        switch.said = said
        (found,) = read_domains(LAB)  # type: ignore[arg-type]
        return found

    return reader


Read = Callable[[dict[str, Any] | None], DomainReading]


def test_every_counter_of_a_switch_has_a_name(read: Read) -> None:
    """Each field of the process's structures is one counter, with its own value, under SAI's names, too."""
    said = status()
    port = said["ports"][GPUS + 2]  # of the third GPU, in the second plane
    fields = [(port, name) for name in names_of(LinkCounters)]
    fields += [(port["retry"], name) for name in names_of(NativeRetrySenderCounters, NativeRetryReceiverCounters)]
    fields += [(port["vcs"][1], name) for name in names_of(VcCounters)]
    for number, (part, name) in enumerate(fields, 1):
        part[name] = 1000 + number
    link = next(item for item in read(said).links if item.link.name == "p1-s1-h1.gpu3:plane2")
    shown = [*link.counters.values(), *(getattr(link.channels[1], name) for name in ("deepest", "s_cc", "s_cf"))]
    shown += [link.channels[1].r_cc, link.channels[1].r_cf]
    unknown = {name for part, name in fields if part[name] not in shown}
    assert unknown == set()
    assert link.sai["SAI_PORT_STAT_LLR_TX_REPLAY"] == port["retry"]["tx_replay"]
    assert link.sai["SAI_PORT_STAT_CBFC_NUM_CF_UPDATE_MESSAGES_RX"] == port["cbfc_num_cf_update_messages_rx"]
    assert not any("RECOVERY" in name for name in link.dcgm), "LLR_INITs are said again and again where nobody answers"
    assert link.dcgm["DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"] == port["retry"]["tx_replay"]
    assert link.dcgm["DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES"] == port["vcs"][1]["tx_bytes"]
    assert len({counter.name for counter in LINK_COUNTERS}) == len(LINK_COUNTERS)


def test_a_span_of_time(read: Read) -> None:
    said = status()
    carry(said, 0, 0, 1, 10)
    before = read(said)
    later = status()
    carry(later, 0, 0, 1, 25)
    span = read(later).since(before)
    assert span.frames == 15 and span.links[0].counters["received_frames"] == 15
    assert span.links[1].channels[0].counters["sent_bytes"] == 15 * 4134
    assert span.links[0].channels[0].r_cc == 125, "the counters of credits are as they stand"
    later["pid"] = 4712
    assert read(later).since(before).frames == 25, "a switch that was started meanwhile has counted all of it"
    assert read(None).since(before).problem == "its switch does not run"


def spoil_frames(port: Port) -> None:
    port["vcs"][0]["rx_frames"] += 1


def spoil_lost(port: Port) -> None:
    port["vcs"][0]["tx_frames"] += 1


def spoil_held(port: Port) -> None:
    port["vcs"][0]["r_cf"] = (port["vcs"][0]["r_cf"] - 100_000) % (1 << 20)


def spoil_used(port: Port) -> None:
    port["vcs"][0]["s_cf"] = (port["vcs"][0]["s_cf"] - 100_000) % (1 << 20)


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (spoil_frames, "stored + returned = sent + refused + undelivered + waiting"),
        (spoil_lost, "stored + returned = sent + refused + undelivered + waiting"),
        (spoil_held, "R_CC - R_CF <= buffer"),
        (spoil_used, "S_CC - S_CF <= limit"),
    ],
)
def test_sums_that_do_not_hold_are_named(read: Read, spoil: Callable[[Port], None], law: str) -> None:
    said = status()
    carry(said, 1, 0, 1, 300_000)  # the 20-bit counters of credits have gone round
    fine = balance_domains([read(said)], LAB.plan)
    assert fine.imbalances == () and fine.checked == PLANES + 2 * 2 * GPUS * PLANES
    spoil(said["ports"][GPUS])
    found = balance_domains([read(said)], LAB.plan)
    assert law in {item.law for item in found.imbalances}
    assert all("plane 2" in item.place or "gpu1:plane2" in item.place for item in found.imbalances)


def test_what_waits_and_what_could_not_leave_is_no_imbalance(read: Read) -> None:
    said = status()
    carry(said, 0, 0, 1, 10)
    inward, outward = said["ports"][0], said["ports"][1]
    inward["vcs"][0]["rx_frames"] += 3
    inward["vcs"][0]["r_cc"] += 10  # two of them wait, the third could not leave
    outward["undelivered"] += 1
    outward["undelivered"] += 1  # a fourth one, whose sender was answered so
    inward["vcs"][0]["rx_frames"] += 1
    inward["vcs"][0]["tx_frames"] += 1
    inward["returned"] += 1
    assert balance_domains([read(said)], LAB.plan).imbalances == ()


def test_series(read: Read) -> None:
    said = status()
    carry(said, 1, 2, 5, 7)
    said["ports"][GPUS + 2]["retry"]["tx_replay"] = 3
    said["ports"][0]["errors"]["down"] = True
    labs = [LabReading(lab="x", k=1.0, domains=(read(said),)), LabReading(lab="y", k=1.0, domains=(read(None),))]
    text = render_metrics(lambda: labs).decode()
    samples: dict[Any, float] = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    def value(name: str, **labels: str) -> float:
        place = {"lab": "x", "domain": "p1-s1-h1", "host": "p1-s1-h1"} | labels
        return samples[f"testbed_scale_up_{name}", tuple(sorted(place.items()))]

    assert value("received_frames_total", plane="2", gpu="3", vc="0") == 7
    assert value("sent_bytes_total", plane="2", gpu="6", vc="0") == 7 * 4134
    assert value("llr_tx_replay_total", plane="2", gpu="3") == 3
    assert value("link_up", plane="1", gpu="1") == 0 and value("link_up", plane="1", gpu="2") == 1
    assert value("credits_held", plane="2", gpu="3", vc="0") == 0
    up = {labels: found for (name, labels), found in samples.items() if name == "testbed_scale_up_switch_up"}
    assert sorted(up.values()) == [0, 1]
    active = [labels for name, labels in samples if name == "testbed_scale_up_sent_frames_total"]
    assert len(active) == 2 * 2, "links that carried nothing have no series of traffic"
    assert "(SAI_PORT_STAT_LLR_TX_REPLAY, DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL)" in text
    assert "testbed_scale_up" not in render_metrics(lambda: [LabReading(lab="z", k=1.0)]).decode()
