"""The k a lab runs at: the file's, the running lab's, or what this machine carries; and when somebody is warned."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.units import Rate
from testbed.lab.core.deploy import scale
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import REFERENCE, ScaleResolution, resolve_scale
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import SCALE_UP_PRESETS, Lab, Scale, ScaleUpBy
from testbed.lab.core.plan.scale import MachineLoad, MachineProfile, PacketDemand

MACHINE = MachineProfile(cores=2, forwarding_bps=2 * 36_000 / 35e-6, mtu_bytes=4500)
ALL_SEND = PacketDemand(packets_per_s=8 * 12e6, burst_packets_per_s=8 * 12e6, senders=8)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "machine_profile", lambda state, measure: MACHINE)


def lab(k: float | None = None) -> Lab:
    params = FabricParams(design="rail-optimized", segments=2, hosts=4, gpus=1, mtu=4500)
    return replace(generate_fabric(params, name="x"), scale=Scale(time=k))


def resolve(asked: Lab, tmp_path: Path, *demands: PacketDemand | None) -> ScaleResolution:
    return resolve_scale(asked, StateDirectory(state=tmp_path, run=tmp_path), demands=demands or (None,))


def test_a_fixed_k_that_the_machine_cannot_carry_is_kept_and_warned_about(tmp_path: Path) -> None:
    small = resolve(lab(2000), tmp_path)
    assert small.k == 2000 and "this machine cannot carry k = 2000" in small.warning
    assert "k = 10000 would stay within" in small.warning
    assert resolve(lab(10_000), tmp_path).warning == ""


def test_a_fixed_k_that_the_kernel_carries_may_be_too_small_for_user_space(tmp_path: Path) -> None:
    found = resolve(lab(10_000), tmp_path, None, ALL_SEND)
    assert found.k == 10_000
    assert "of a transport in user space" in found.warning and "k = 40000 would stay within" in found.warning


def test_the_point_that_asks_for_most_decides(tmp_path: Path) -> None:
    alone = replace(ALL_SEND, packets_per_s=12e6, burst_packets_per_s=12e6, senders=1)
    assert [resolve(lab(), tmp_path, *demands).k for demands in ((None,), (alone,), (None, alone, ALL_SEND))] == [
        10_000,
        5000,
        40_000,
    ]


def test_a_running_lab_keeps_its_k_and_traffic_that_does_not_fit_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Running:
        k = 5000.0

    monkeypatch.setattr(StateDirectory, "exists", lambda self, name: True)
    monkeypatch.setattr(StateDirectory, "read", lambda self, name: Running)
    kept = resolve(lab(), tmp_path)
    assert (kept.k, kept.reason, kept.warning, kept.bound) == (5000.0, "as deployed", "", True)
    replaced = resolve_scale(lab(), StateDirectory(state=tmp_path, run=tmp_path), replaces=True)
    assert (replaced.k, replaced.reason == kept.reason) == (10_000, False), "what goes says nothing of the new one"
    found = resolve(lab(), tmp_path, ALL_SEND)
    assert found.k == 5000 and "x is deployed, and this machine cannot carry k = 5000" in found.warning


def test_what_fits_at_no_k_is_told_and_may_be_tried(tmp_path: Path) -> None:
    crowd = replace(ALL_SEND, packets_per_s=1e12)
    found = resolve(lab(), tmp_path, crowd)
    assert found.k == 200_000 and found.slowest and "cannot carry k = 200000" in found.warning
    assert resolve(lab(), tmp_path, None).slowest is False


def test_figures_of_the_reference_machine_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "machine_profile", lambda state, measure: REFERENCE)
    assert "this one was not measured" in resolve(lab(), tmp_path).reason


def test_room_is_left_for_others(tmp_path: Path) -> None:
    state = StateDirectory(state=tmp_path, run=tmp_path)
    alone = resolve_scale(lab(), state, demands=[ALL_SEND])
    beside = resolve_scale(lab(), state, demands=[ALL_SEND], others=MachineLoad(busy=0.4, steal=0.02))
    assert (alone.k, beside.k) == (40_000, 70_000)
    assert alone.load * 40 == pytest.approx(beside.load * 70)
    assert "others keep 40% of the CPUs busy now, and 2% were stolen in the last minute" in beside.reason
    assert "others" not in alone.reason


class TestVirtualTime:
    """A processor of one instruction a nanosecond, on which a larger k costs nothing."""

    @pytest.fixture(autouse=True)
    def virtual(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TESTBED_VIRTUAL_TIME", "1")

    def test_a_packet_may_cost_less_of_its_time_on_the_wire(self, tmp_path: Path) -> None:
        assert resolve(lab(), tmp_path).k == 50_000  # 10,000 on the wall clock
        assert resolve(lab(), tmp_path, ALL_SEND).k == 100_000  # 40,000
        assert "would stay within 20%" in resolve(lab(10_000), tmp_path).warning

    def test_ports_may_become_slower_for_that(self, tmp_path: Path) -> None:
        many = replace(ALL_SEND, packets_per_s=5 * ALL_SEND.packets_per_s)
        found = resolve(lab(), tmp_path, many)
        assert (found.k > 400_000, found.warning, found.slowest) == (True, "", False)

    def test_too_many_are_told(self, tmp_path: Path) -> None:
        many = replace(ALL_SEND, packets_per_s=50 * ALL_SEND.packets_per_s)
        found = resolve(lab(), tmp_path, many)
        assert found.slowest and "cannot carry" in found.warning


def with_packets(k: float | None = None, *, rate: str = "400G") -> Lab:
    """8 domains of one GPU each: the demand of a domain is made by its rate."""
    scale_up = replace(SCALE_UP_PRESETS["h100"], by=ScaleUpBy.PACKETS, rate=Rate.parse(rate))
    return replace(lab(k), scale_up=scale_up)


def test_the_larger_demand_of_nics_and_of_scale_up_domains_decides(tmp_path: Path) -> None:
    """8 GPUs of 3.6 Tb/s send 8.8 x 10^8 frames a second, which are answered, and half of 100,000 may be used."""
    small, large = resolve(with_packets(rate="36G"), tmp_path), resolve(with_packets(rate="3.6T"), tmp_path)
    assert (small.k, large.k) == (10_000, 50_000)
    assert "packets of scale-up domains, 17,578 frames/s" in large.reason
    assert large.load == pytest.approx(0.35, abs=0.01)
    assert (small.warning, large.warning) == ("", "")
    assert resolve(lab(), tmp_path).k == 10_000, "by time, domains ask for nothing"


def test_a_fixed_k_that_is_too_small_for_packets_is_kept_and_warned_about(tmp_path: Path) -> None:
    crowded, short = resolve(with_packets(20_000, rate="3.6T"), tmp_path), resolve(with_packets(1_000), tmp_path)
    assert (crowded.k, short.k) == (20_000, 1_000)
    assert "scale-up domains by packets need k = 50,000, not 20000: they would use 88%" in crowded.warning
    assert "own round trip of 150 us would be more than a tenth" in short.warning
    assert not crowded.slowest


def test_domains_that_ask_for_more_than_ports_allow_are_warned_about(tmp_path: Path) -> None:
    found = resolve(with_packets(rate="100T"), tmp_path)
    assert (found.k, found.slowest) == (200_000, True)
    assert "need k = 1,000,000, not 200000" in found.warning
