"""Faults of a design that a topology file cannot have, whose keys are checked before; others: tests/golden/refusals."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.base.units import Duration, Rate
from testbed.lab.core.fabric import (
    FabricError,
    FabricParams,
    NicParams,
    RailParams,
    UplinkParams,
    check_params,
    generate_fabric,
)
from testbed.lab.core.model import Bfd, Routing

BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("pod", {"mtu": 1279}, "mtu", "mtu is 1279 bytes; it goes from 1280 to 9216"),
    ("pod", {"uplink": UplinkParams(count=0)}, "uplink.count", "uplink.count is 0; it goes from 1 to 64"),
    ("pod", {"nic": NicParams(rate=Rate(0))}, "nic.rate", "nic.rate cannot be zero"),
    ("pod", {"nic": NicParams(ports=3)}, "nic.ports", "nic.ports cannot be 3 (one of 1, 2, 4)"),
    (
        "pod",
        {"nic": NicParams(per="gpus")},
        "nic.per",
        "nic.per cannot be gpus (one of gpu, host)\n  hint: did you mean gpu?",
    ),
    (
        "pod",
        {"rails": RailParams(per_switch=3)},
        "rails.per_switch",
        "rails.per_switch cannot be 3 (one of 1, 2, 4, 8)",
    ),
    (
        "pod",
        {"rails": RailParams(port_map="figure-13-7")},
        "rails.port_map",
        "rails.port_map cannot be figure-13-7 (one of figure-13-6, figure-13-10, figure-13-11)\n"
        "  hint: did you mean figure-13-6?",
    ),
    ("pod", {"routing": Routing(ecmp=225)}, "routing.ecmp", "routing.ecmp is 225; it goes from 1 to 224"),
    (
        "pod",
        {"routing": Routing(bfd=Bfd(interval=Duration.parse("5ms")), bfd_auto=False)},
        "routing.bfd.interval",
        "routing.bfd.interval is 5 ms; it goes from 10 to 60000",
    ),
]


@pytest.mark.parametrize(("design", "written", "field", "text"), BAD, ids=[f"{bad[0]}-{bad[2]}" for bad in BAD])
def test_refused(design: str, written: dict[str, Any], field: str, text: str) -> None:
    params = FabricParams(design=design, **written)
    faults = check_params(params)
    assert [(fault.field, str(fault)) for fault in faults] == [(field, text)]
    assert faults[0].exit_code == 2
    with pytest.raises(FabricError) as raised:
        generate_fabric(params, name="lab")
    assert (raised.value.field, str(raised.value), raised.value.code) == (field, text, faults[0].code)


@pytest.mark.parametrize(
    "written",
    [
        {"pods": 1, "segments": 1, "spines": 0, "super_spines": 0},
        {"nic": NicParams(ports=1, per="gpu", multihoming="subnets")},
        {"gpus": 4, "rails": RailParams(per_switch=4)},
        {"nic": NicParams(per="host", count=2)},
    ],
)
def test_writing_what_the_design_fixes_is_accepted(written: dict[str, Any]) -> None:
    assert check_params(FabricParams(design="single-switch", **written)) == ()
