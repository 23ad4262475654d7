"""Which cable a link has: by what its file says, by its delay, by where it is."""

import pytest

from testbed.base.errors import SpecError
from testbed.base.units import Rate
from testbed.lab.core.fabric.figures.cables import Cable, cable_for, count_cables
from testbed.lab.core.schema.load import load_topology_text


def counts(text: str) -> dict[tuple[str, str], int]:
    lab = load_topology_text(text, file="lab.yml")
    return {(one.cable.value, str(one.rate)): one.count for one in count_cables(lab)}


@pytest.mark.parametrize(
    ("length_m", "rate", "cable"),
    [
        (2, "400G", Cable.DAC),
        (3, "400G", Cable.DAC),
        (3, "800G", Cable.AOC),
        (2, "800G", Cable.DAC),
        (3.1, "400G", Cable.AOC),
        (30, "400G", Cable.AOC),
        (31, "400G", Cable.OPTICS),
    ],
)
def test_kinds_by_length_and_rate(length_m: float, rate: str, cable: Cable) -> None:
    assert cable_for(length_m, Rate.parse(rate)) is cable


def test_a_host_whose_rails_are_on_one_switch_stands_beside_it() -> None:
    text = "name: a\nfabric: {{design: {}, hosts: 2, gpus: 8, segments: 2, spines: 2, {}}}\n"
    rate = "uplink: {rate: 400G}, nic: {rate: 100G}"
    assert counts(text.format("multi-rail-switch", rate)) == {("dac", "100 Gbit/s"): 32, ("optics", "400 Gbit/s"): 4}
    assert counts(text.format("rail-optimized", rate)) == {("aoc", "100 Gbit/s"): 32, ("optics", "400 Gbit/s"): 32}


def test_two_ports_of_a_nic_on_two_switches_are_one_rack() -> None:
    assert set(counts("name: a\nfabric: {design: dual-switch}\n")) == {("dac", "200 Gbit/s")}


def test_a_delay_is_a_length() -> None:
    """5 ns a metre: 10 ns are 2 m, 100 ns 20 m, 500 ns 100 m."""
    text = (
        "name: a\nfabric: {{design: rail-optimized, hosts: 1, gpus: 1, segments: 2, spines: 1,"
        " uplink: {{delay: {}}}}}\n"
    )
    at_host = ("dac", "400 Gbit/s")
    kinds = [next(iter(set(counts(text.format(delay))) - {at_host}), None) for delay in ("100ns", "500ns")]
    assert kinds == [("aoc", "400 Gbit/s"), ("optics", "400 Gbit/s")]
    assert counts(text.format("10ns")) == {("dac", "400 Gbit/s"): 4}


def test_a_file_names_its_cables() -> None:
    text = (
        "name: a\nfabric: {design: rail-optimized, pods: 2, hosts: 2, gpus: 2, segments: 1, spines: 2, super_spines: 1,"
        " nic: {cable: dac}, uplink: {cable: aoc}, core_uplink: {cable: optics}}\n"
    )
    assert counts(text) == {("dac", "400 Gbit/s"): 8, ("aoc", "400 Gbit/s"): 8, ("optics", "400 Gbit/s"): 4}
    both = text.replace(", core_uplink: {cable: optics}", "")
    assert counts(both)[("aoc", "400 Gbit/s")] == 12, "core_uplink is as uplink where nothing else is said"


def test_a_link_by_hand_names_its_cable_in_a_label() -> None:
    text = (
        "name: a\nfabric: {switch_radix: 64}\ntopology:\n  nodes:\n    h1: {kind: host}\n    h2: {kind: host}\n"
        "    s1: {kind: switch, role: rail}\n"
        "  links:\n"
        "    - {endpoints: ['h1:eth1', 's1:eth1'], rate: 400G, labels: {cable: AOC}}\n"
        "    - {endpoints: ['h2:eth1', 's1:eth2'], rate: 400G, labels: {cable: the red one}}\n"
    )
    assert counts(text) == {("dac", "400 Gbit/s"): 1, ("aoc", "400 Gbit/s"): 1}


def test_another_word_for_a_cable_is_refused() -> None:
    text = "name: a\nfabric:\n  design: rail-optimized\n  uplink: {cable: acc}\n"
    with pytest.raises(
        SpecError, match=r"lab\.yml:4:19: unknown-value: fabric\.uplink\.cable: must be one of dac, aoc"
    ):
        counts(text)


def test_management_ports_are_left_out() -> None:
    text = (
        "name: a\nfabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}\n"
        "networks:\n  management: {design: out-of-band}\n"
    )
    assert sum(counts(text).values()) == 3
