"""What TCP's congestion control is in a run, and what records and trust say of it."""

from pathlib import Path
from typing import Any

import pytest
from fake_lab import FakeLab, small_lab

from testbed.base.errors import CapabilityError
from testbed.endpoints.worker.streams.tcp_socket import has_congestion_control
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import SetSysctl
from testbed.lab.core.schema.load import load_topology
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.transports.registry import transport_on
from testbed.run.trust.traffic import check_congestion_control

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "single-switch.yml"


@pytest.fixture
def lab() -> Any:
    return FakeLab(*small_lab(hosts=2, rails=1, spines=2, k=4000), lambda node, argv: argv)


def test_a_lab_has_its_own_in_every_host() -> None:
    plan = plan_lab(load_topology(TOPOLOGY), k=10_000)
    for host in plan.hosts:
        found = [
            (item.value, item.optional)
            for item in plan.operations
            if isinstance(item, SetSysctl) and item.node == host.node and "congestion_control" in item.key
        ]
        assert found == [("reno", True), ("cubic", True)], "the best that the machine lets it have comes last"


def test_the_record_says_it_where_the_file_does_not(lab: Any) -> None:
    assert transport_on(lab, Transport()).as_run() == {"kind": "tcp", "cc": "cubic"}
    assert transport_on(lab, Transport(cc="bbr")).as_run()["cc"] == "bbr"
    assert "cc" not in transport_on(lab, Transport(kind=TransportKind.UET)).as_run()
    assert "(cubic)" in transport_on(lab, Transport()).approximations()[0]


def test_one_that_the_kernel_lacks_is_refused(lab: Any) -> None:
    assert has_congestion_control("reno") and not has_congestion_control("no-such-thing")
    asked = Transport(cc="no-such-thing")
    with pytest.raises(CapabilityError, match="no congestion control 'no-such-thing'") as caught:
        transport_on(lab, asked).check_machine(asked)
    assert "doctor" in (caught.value.hint or "")


def test_trust_tells_the_default_its_stand_in_and_what_is_neither() -> None:
    (usual,) = check_congestion_control({"a": "cubic", "b": "cubic"})
    assert usual.ok and usual.message == "TCP used cubic, the lab's default"
    (lacking,) = check_congestion_control({"a": "reno", "b": "reno"})
    assert lacking.ok and "no cubic: TCP used reno instead" in lacking.message
    for mixed in ({"a": "cubic", "b": "reno"}, {"a": "bbr", "b": "bbr"}):
        (wrong,) = check_congestion_control(mixed)
        assert not wrong.ok and wrong.value > 0 and "deploy again" in wrong.message
