"""What RDMA devices counted goes to the channels of a run of workers, and how their packets are marked."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from fake_lab import FakeLab, small_lab
from run_rows import channel

from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.plan.operations import CreateRdma
from testbed.record.samples import Transfers
from testbed.run.measuring.measured import Measured
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.transports.registry import transport_on


def test_counters_of_a_device_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, plan = small_lab(hosts=2, rails=1, spines=1)
    nics = [nic for host in plan.hosts for nic in host.nics]
    made = tuple(CreateRdma(node=nic.node, name=nic.name, device=nic.node) for nic in nics)
    lab = FakeLab(model, replace(plan, operations=made), lambda node, argv: argv)
    counts = {nic.node: {"completer_retry_err": 5, "rcvd_seq_err": 1} for nic in nics}
    marked: list[tuple[list[str], int]] = []

    def mark(devices: Iterable[str], traffic_class: int) -> None:
        marked.append((list(devices), traffic_class))

    monkeypatch.setattr(rdma, "mark_connections", mark)
    monkeypatch.setattr(rdma, "counters", lambda device: dict(counts[device]))
    add_counted = transport_on(lab, Transport(kind=TransportKind.RDMA)).observe_run(nics)
    assert marked == [([nic.node for nic in nics], 2)], "ECT(0)"
    counts["p1-s1-h1"]["completer_retry_err"] += 3
    counts["p1-s1-h2"] = {}  # it has gone
    after = Measured(
        transfers=Transfers(),
        channels=[
            channel("p1-s1-h1", "p1-s1-h2", source_port=20000, packets=1),
            channel("p1-s1-h1", "p1-s2-h1", source_port=20001, packets=1),
            channel("p1-s1-h2", "p1-s1-h1", source_port=20002, packets=1),
        ],
        counters={"latest_timer_us": 7.0},
    )
    add_counted(after)
    assert [item.retransmits for item in after.channels] == [3, 0, 0]
    assert {(item.source_port, item.packets) for item in after.channels} == {(None, None)}
    assert after.counters["latest_timer_us"] == 7.0
    assert (after.counters["completer_retry_err"], after.counters["rcvd_seq_err"]) == (3.0, 0.0)
