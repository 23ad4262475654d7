"""The difference of two values in words that a person reads: names without units, values with theirs."""

from dataclasses import replace

import pytest

from testbed.base.datapath.traffic_class import UNLIMITED, ClassPlan
from testbed.lab.core.deploy.changing.telling.difference_text import difference_text, told
from testbed.lab.core.model import BalancingMode, HashEngine
from testbed.lab.core.plan.operations import CreateVeth, ShapePort, VethEnd
from testbed.lab.core.plan.qos.qos_plan import BufferPlan, PortProfile

SHAPE = ShapePort(node="h1", name="rail1", ifindex=2, rate_bps=80_000_000, burst_bytes=4096)
RDMA = ClassPlan(priority=3, name="rdma", kmin_bytes=4800, kmax_bytes=9600, limit_bytes=UNLIMITED)
PROFILE = PortProfile(
    profile=0,
    switch=True,
    rate_bps=80_000_000,
    mtu_bytes=4500,
    bdp_bytes=12_000,
    classes=(RDMA, ClassPlan(priority=0, name="bulk")),
    class_of_dscp=(0,) * 64,
    control_class=0,
    trimmed_class=0,
    trimming=False,
)
BUFFER = BufferPlan(
    node="s1",
    shared_bytes=16_000_000,
    headroom_bytes=0,
    mode=BalancingMode.FLOW,
    hash=HashEngine.EBPF,
    gap_ns=0,
    seed=1,
)


def test_nothing_differs_of_the_same() -> None:
    assert difference_text(SHAPE, SHAPE) == ""


def test_a_rate_is_that_of_the_lab() -> None:
    assert difference_text(SHAPE, replace(SHAPE, rate_bps=40_000_000)) == "lab rate 80 Mbit/s -> 40 Mbit/s"
    assert difference_text(SHAPE, replace(SHAPE, burst_bytes=8192), without=("burst_bytes",)) == ""


def test_of_a_table_it_says_which_places_differ() -> None:
    table = tuple(3 if dscp == 26 else 0 for dscp in range(64))
    assert difference_text(PROFILE, replace(PROFILE, class_of_dscp=table)) == "class of dscp 26 0 -> 3"
    told_all = difference_text(PROFILE, replace(PROFILE, class_of_dscp=(1,) * 64))
    assert told_all.startswith("class of dscp 0 0 -> 1, class of dscp 1") and told_all.endswith(" and 61 more")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kmin_bytes": 2400}, "rdma.kmin 4.8 kB -> 2.4 kB"),
        ({"kmin_bytes": None}, "rdma.kmin 4.8 kB -> none"),
        ({"limit_bytes": 64_000}, "rdma.limit no limit -> 64 kB"),
        ({"lossless": True}, "rdma.lossless off -> on"),
        ({"pmax": 0.1}, "rdma.pmax 1 -> 0.1"),
    ],
)
def test_a_class_is_called_by_its_name(change: dict[str, object], said: str) -> None:
    after = replace(PROFILE, classes=(replace(RDMA, **change), *PROFILE.classes[1:]))  # type: ignore[arg-type]
    assert difference_text(PROFILE, after) == said


def test_classes_come_and_go() -> None:
    after = replace(PROFILE, classes=(RDMA, ClassPlan(priority=5, name="control")))
    assert difference_text(PROFILE, after) == "control is new, bulk is gone"


def test_a_word_is_told_as_a_file_has_it() -> None:
    assert difference_text(BUFFER, replace(BUFFER, mode=BalancingMode.SPRAY)) == "mode flow -> spray"


def test_a_link_is_told_by_what_of_it_differs() -> None:
    ends = [VethEnd(node=node, name="eth1", ifindex=2, mac="02:00:00:00:00:01") for node in "ab"]
    link = CreateVeth(a=ends[0], b=ends[1], mtu_bytes=4500)
    assert difference_text(link, replace(link, mtu_bytes=1500)) == "mtu 4500 B -> 1500 B"


def test_of_many_differences_the_first_are_told() -> None:
    assert told([f"d{number}" for number in range(7)]) == "d0, d1, d2 and 4 more"
    assert told(["same", "same"]) == "same"
