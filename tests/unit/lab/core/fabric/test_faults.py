"""What a design refuses: the field at fault, the words, the hint; and all faults at once.

More of them, as a file has them, are in the corpus of bad files: tests/golden/bad.
"""

from typing import Any

import pytest

from testbed.base.errors import FabricError
from testbed.lab.core.fabric import FabricParams, NicParams, RailParams, UplinkParams, check_params, generate_fabric

BAD: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "single-switch",
        {"pods": 2},
        "pods",
        "design single-switch fixes pods at 1, not 2\n  hint: leave pods out or choose another design",
    ),
    (
        "multi-rail-switch",
        {"rails": RailParams(per_switch=2)},
        "rails.per_switch",
        "design multi-rail-switch fixes rails.per_switch at 8 or 4, not 2\n"
        "  hint: leave rails.per_switch out or choose another design",
    ),
    (
        "shared-nic",
        {"nic": NicParams(per="gpu")},
        "nic.per",
        "design shared-nic fixes nic.per at host, not gpu\n  hint: leave nic.per out or choose another design",
    ),
    ("multi-pod", {"pods": 1}, "pods", "design multi-pod needs pods of at least 2, not 1"),
    ("pod", {"segments": 4097}, "segments", "segments is 4097; it goes from 1 to 4096"),
    (
        "pod",
        {"segments": 3, "hosts": (4, 3)},
        "hosts",
        "hosts has 2 numbers, and there are 3 segments\n  hint: one number for each segment, or one for all",
    ),
    (
        "multi-pod",
        {"segments": 2, "hosts": (4, 3, 2)},
        "hosts",
        "hosts has 3 numbers, and there are 2 pods of 2 segments\n  hint: one number for each segment, or one for all",
    ),
    ("pod", {"hosts": (4, 0)}, "hosts", "hosts has 0; a segment has 1 to 65533"),
    ("multi-pod", {"pods": 65}, "pods", "pods is 65; it goes from 1 to 64"),
    ("pod", {"hosts": 0}, "hosts", "hosts is 0; it goes from 1 to 65533"),
    ("pod", {"spines": 1024}, "spines", "spines is 1024; it goes from 0 to 1023"),
    ("multi-pod", {"super_spines": 4097}, "super_spines", "super_spines is 4097; it goes from 0 to 4096"),
    ("pod", {"uplink": UplinkParams(count=0)}, "uplink.count", "uplink.count is 0; it goes from 1 to 64"),
    (
        "shared-nic",
        {"nic": NicParams(count=3)},
        "nic.count",
        "8 GPUs cannot share 3 NICs evenly\n  hint: a divisor of gpus",
    ),
    (
        "single-switch",
        {"gpus": 9},
        "gpus",
        "design single-switch puts all 9 rails of a host on one switch, which carries 8\n"
        "  hint: at most 8 rails fit on a switch",
    ),
    (
        "rail-optimized",
        {"gpus": 33},
        "gpus",
        "33 rails with 1 on a switch need 33 rail switches; a segment has at most 32\n"
        "  hint: more rails.per_switch, or fewer rails",
    ),
    (
        "rail-optimized",
        {"gpus": 33, "nic": NicParams(ports=2)},
        "gpus",
        "33 rails with 1 on a switch need 33 rail switches; a segment has for each port of a NIC at most 32\n"
        "  hint: more rails.per_switch, or fewer rails",
    ),
    (
        "rail-optimized",
        {"rails": RailParams(port_map="figure-13-6")},
        "rails.port_map",
        "port map figure-13-6 is of a switch with 8 rails; here a switch carries 1\n"
        "  hint: rails.per_switch: 8, or leave rails.port_map out",
    ),
    (
        "rail-optimized",
        {"hosts": 254},
        "hosts",
        "254 hosts do not fit into a rail's /24: it holds 253 beside the gateway\n  hint: rails.prefix_length: 23",
    ),
    (
        "pod",
        {"rails": RailParams(prefix_length=18)},
        "rails.prefix_length",
        "8 rails of a /18 each exceed the /16 a rail switch may have\n  hint: rails.prefix_length: 19 or longer",
    ),
]


@pytest.mark.parametrize(("design", "written", "field", "text"), BAD, ids=[f"{bad[0]}-{bad[2]}" for bad in BAD])
def test_refused(design: str, written: dict[str, Any], field: str, text: str) -> None:
    params = FabricParams(design=design, **written)
    faults = check_params(params)
    assert [(fault.field, str(fault)) for fault in faults] == [(field, text)]
    assert faults[0].exit_code == 3
    with pytest.raises(FabricError) as raised:
        generate_fabric(params, name="lab")
    assert (raised.value.field, str(raised.value), raised.value.code) == (field, text, faults[0].code)


def test_all_faults_at_once() -> None:
    params = FabricParams(design="single-switch", pods=2, hosts=14, spines=1, nic=NicParams(ports=2, count=2))
    fields = [fault.field for fault in check_params(params)]
    assert sorted(fields) == ["hosts", "nic.count", "nic.ports", "pods", "spines"]


def test_a_bad_value_is_reported_once() -> None:
    """One fault for the value, none for what follows from it."""
    faults = check_params(FabricParams(design="rail-only", pods=0, rails=RailParams(per_switch=2)))
    assert [fault.field for fault in faults] == ["pods", "rails.per_switch"]


@pytest.mark.parametrize(
    "written",
    [
        {"pods": 1, "segments": 1, "spines": 0, "super_spines": 0},
        {"nic": NicParams(ports=1, per="gpu")},
        {"gpus": 4, "rails": RailParams(per_switch=4)},
        {"nic": NicParams(per="host", count=2)},
    ],
)
def test_writing_what_the_design_fixes_is_accepted(written: dict[str, Any]) -> None:
    assert check_params(FabricParams(design="single-switch", **written)) == ()
