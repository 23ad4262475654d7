"""Changing links of live labs and undoing it: on the kernel, in the data path's maps, and as packets see it."""

import json
import subprocess
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from waiting import until

from testbed.base.errors import CapabilityError
from testbed.base.linux import rtnetlink
from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.units import Duration, Rate
from testbed.cli.labs.graph import graph as draw_graph
from testbed.cli.labs.inspect_views import chosen_nodes, show_view
from testbed.cli.nodes.link_changes import read_conditions
from testbed.cli.options import Format
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckStatus
from testbed.lab.core.deploy.watch.rtt import measure_rtt
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.probing.kernel_probe import probe_kernel
from testbed.lab.core.fabric.params import UplinkParams
from testbed.lab.core.model import Delay, DelayBy, QosPolicy, QosProfile, TrafficClass
from testbed.lab.core.plan.link_delays import delay_operation
from testbed.lab.core.plan.operations import DelayPort

pytestmark = [pytest.mark.netns, pytest.mark.frr]

NIC, OTHER = "p1-s1-h1:rail1", "p1-s1-h2:rail1"
PROFILE = QosProfile(
    preset="test",
    classes=(
        TrafficClass(name="bulk", priority=0, default=True, weight=40),
        TrafficClass(name="rdma", priority=3, dscp=(26,), weight=60, lossless=True),
        TrafficClass(name="control", priority=6, dscp=(48,), strict=True),
    ),
)


def tiny(sandbox: Any, *, qos: bool = False) -> Any:
    """Two hosts under one rail switch and a spine: NICs and their wires, no far paths."""
    delay = Delay(value=Duration.parse("1us"))
    model = sandbox.model(segments=1, gpus=1, spines=1, uplink=UplinkParams(delay=delay))
    return replace(model, qos=QosPolicy(profiles=(PROFILE,))) if qos else model


def seen(lab: RunningLab, node: str) -> dict[str, Any]:
    """All that a change of one of a node's links may touch in the kernel."""

    def words(*argv: str) -> str:
        return lab.run(node, argv).stdout

    qdiscs = json.loads(words("tc", "-j", "qdisc", "show"))
    return {
        "classes": {
            port.name: words("tc", "class", "show", "dev", port.name) for port in lab.plan.ports if port.node == node
        },
        "qdiscs": [{key: item[key] for key in ("kind", "handle", "dev", "options")} for item in qdiscs],
        "filters": {
            port.name: words("tc", "filter", "show", "dev", port.name, "ingress")
            for port in lab.plan.ports
            if port.node == node
        },
        "links": sorted(item["ifname"] for item in json.loads(words("ip", "-j", "link"))),
        "routes": sorted(words("ip", "route", "show", "table", "all").splitlines()),
        "rules": words("ip", "rule"),
        "addresses": sorted(line.split()[3] for line in words("ip", "-o", "-4", "address").splitlines()),
    }


def wire_records(lab: RunningLab) -> list[tuple[int, ...]]:
    maps = lab.maps()
    try:
        names = ("loss", "corruption", "delay_ifindex", "loss_every")
        return [tuple(int(record[name]) for name in names) for record in maps.ports]
    finally:
        maps.close()


def arrived(lab: RunningLab, count: int = 100) -> int:
    """How many of so many requests are answered (ping of iputils)."""
    address = lab.port(*OTHER.split(":")).address
    argv = ["ping", "-q", "-c", str(count), "-i", "0.002", "-W", "1", str(address.ip)]
    said = lab.run("p1-s1-h1", argv, timeout_s=60).stdout
    return int(next(line for line in said.splitlines() if "received" in line).split(",")[1].split()[0])


def test_every_change_is_undone_exactly(sandbox: Any) -> None:
    lab = sandbox.deploy(tiny(sandbox, qos=True)).lab
    assert arrived(lab, 5) == 5
    node = "p1-s1-h1"
    before, records = seen(lab, node), wire_records(lab)
    assert before["classes"]["rail1"].count("class htb") == 4
    with LinkControl(lab) as control:
        for change in (
            LinkChange(rate_share=0.5),
            LinkChange(rate=Rate.parse("10G")),
            LinkChange(lab_rate=Rate.parse("3M"), loss=0.1, corruption=0.2, loss_every=9, silent=True),
            LinkChange(up=False),
            LinkChange(up=True),
        ):
            control.set(NIC, change, both=True)
        assert seen(lab, node)["classes"] != before["classes"]
        assert wire_records(lab) != records
        assert sorted(control.reset_all()) == [NIC, "p1-s1-rail1:down1"]
        assert control.changed() == []
    assert seen(lab, node) == before
    assert wire_records(lab) == records
    assert not (lab.state_directory / "links.json").exists()
    arrived(lab, 5)  # down and up, neighbours are learnt anew, which may cost a packet
    assert arrived(lab, 20) == 20
    sandbox.destroy()


def test_loss_acts_in_one_direction_and_at_once(sandbox: Any) -> None:
    lab = sandbox.deploy(tiny(sandbox, qos=True)).lab
    assert arrived(lab, 5) == 5
    with LinkControl(lab) as control:
        control.set(NIC, LinkChange(loss_every=10))
        assert arrived(lab, 200) == 180, "nothing but the pings crosses this wire"
        control.set(NIC, LinkChange(loss_every=0, silent=True))
        assert arrived(lab, 20) == 0
        assert control.show(NIC).actual["carrier"], "a silent link does not look down"
        control.set(NIC, LinkChange(silent=False, loss=0.5))
        assert 50 <= arrived(lab, 200) <= 150  # 100 +- 7 sigma
        control.reset(NIC)
        assert arrived(lab, 50) == 50
        control.set(NIC, LinkChange(corruption=1.0))
        assert arrived(lab, 20) == 0, "nobody answers a request whose checksum is wrong"
    sandbox.destroy()


def test_the_rate_is_what_the_kernel_then_does(sandbox: Any) -> None:
    lab = sandbox.deploy(tiny(sandbox)).lab
    with LinkControl(lab) as control:
        declared = control.show(NIC).declared.rate_bps
        control.set(NIC, LinkChange(rate_share=0.25))
        shown = control.show(NIC)
        assert shown.now.rate_bps == declared // 4
        assert shown.actual["rate_bps"] == pytest.approx(declared / 4, rel=0.001)
        assert control.show(OTHER).actual["rate_bps"] == pytest.approx(declared, rel=0.001)
    sandbox.destroy()


@pytest.mark.parametrize("qos", [False, True])
def test_views_of_links_show_them_as_they_are(
    sandbox: Any, qos: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was changed is shown with what is declared beside it, and what the kernel has counts."""
    monkeypatch.setenv("COLUMNS", "400")
    lab = sandbox.deploy(tiny(sandbox, qos=qos)).lab
    monkeypatch.setenv("TESTBED_STATE_DIR", str(lab.state.state))
    monkeypatch.setenv("TESTBED_RUN_DIR", str(lab.state.run))
    first = read_conditions(lab)
    assert first and all(one.as_declared and one.rate == one.declared_rate for one in first.values())
    declared = first[NIC].declared_rate
    with LinkControl(lab) as control:
        control.set(NIC, LinkChange(rate_share=0.25))
        control.set(OTHER, LinkChange(up=False))
    node, _, interface = NIC.partition(":")
    narrow = ["ip", "-n", lab.namespace(node), "link", "set", interface, "mtu"]
    mtu_bytes = lab.port(node, interface).mtu_bytes
    subprocess.run([*narrow, "1400"], check=True)
    show_view("links", lab.name, None, None, chosen_nodes(None), Format.JSON)
    rows = {row["a"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[NIC]["rate"] == str(Rate(declared.bps // 4)) and rows[NIC]["declared_rate"] == str(declared)
    assert (rows[NIC]["mtu"], rows[NIC]["declared_mtu"], rows[OTHER]["mtu"]) == (1400, mtu_bytes, mtu_bytes)
    assert rows[NIC]["changes"][0].endswith("MTU 1400")
    subprocess.run([*narrow, str(mtu_bytes)], check=True)
    assert rows[NIC]["lab_rate"] != rows[NIC]["declared_lab_rate"] and rows[NIC]["changes"][0].startswith(f"{NIC} -> ")
    assert (rows[NIC]["state"], rows[OTHER]["state"], rows[OTHER]["changes"]) == ("up", "down", [])
    show_view("links", lab.name, None, None, chosen_nodes(None), Format.TABLE)
    assert f"(declared {declared})" in " ".join(capsys.readouterr().out.split())
    draw_graph.main(["-n", lab.name, "--kind", "dot"], standalone_mode=False)
    drawn = [line for line in capsys.readouterr().out.splitlines() if " -- " in line]
    assert sum('label="down"' in line for line in drawn) == 1
    assert sum(f'label="{Rate(declared.bps // 4)}"' in line for line in drawn) == 1
    with LinkControl(lab) as control:
        control.reset_all()
    until(lambda: all(one.as_declared for one in read_conditions(lab).values()), "every link is as declared again")
    sandbox.destroy()


def test_a_host_that_was_down_is_reached_again_with_all_its_routes(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.model()).lab
    before = seen(lab, "p1-s1-h1")
    with LinkControl(lab) as control:
        control.set(NIC, LinkChange(up=False))
        assert seen(lab, "p1-s1-h1")["routes"] != before["routes"]
        control.set(NIC, LinkChange(up=True))
    assert seen(lab, "p1-s1-h1") == before
    sandbox.destroy()


def test_a_change_outlives_the_process_that_made_it(sandbox: Any) -> None:
    lab = sandbox.deploy(tiny(sandbox)).lab
    before = seen(lab, "p1-s1-h1")
    assert sandbox.cli("link", "set", NIC, "--rate", "50%", "-n", lab.name).returncode == 0
    shown = json.loads(sandbox.cli("link", "show", "-n", lab.name, "-f", "json").stdout)
    assert [item["port"] for item in shown] == [NIC]
    assert shown[0]["now"]["rate_bps"] * 2 == shown[0]["declared"]["rate_bps"]
    refused = sandbox.cli("link", "set", NIC, "--loss", "1%", "-n", lab.name)
    assert refused.returncode == 3
    assert "qos:" in refused.stderr
    assert sandbox.cli("link", "reset", "--all", "-n", lab.name).stdout == "1 directions are as declared again\n"
    assert seen(lab, "p1-s1-h1") == before
    sandbox.destroy()


# A kernel without netem cannot delay, but it can send arrivals through the ifb, which is most of what could go wrong.
# With netem the same messages delay; that is tried where such a kernel is at hand (the virtual machine's).


def through_ifb(lab: RunningLab, port_key: str, *, undo: bool = False) -> DelayPort:
    """Put an ifb without netem into the wire to a port, or take it away again."""
    number, port = next(
        (number, port) for number, port in enumerate(lab.plan.ports, start=1) if f"{port.node}:{port.name}" == port_key
    )
    operation = delay_operation(port, number, rate_bps=1, delay_ns=1, jitter_ns=0, has_qos=lab.model.qos is not None)
    batch = list(wire.undelay_port(operation))
    if not undo:
        batch = [item for item in wire.delay_port(operation) if not is_netem(item)]

    with closing(in_namespace(lab.namespace(port.node), RouteSocket)) as route:
        route.expect(batch, ["wire"] * len(batch))
    if lab.model.qos is not None:
        maps = lab.maps(writable=True)
        maps.ports["delay_ifindex"][number] = 0 if undo else operation.ifb_ifindex
        maps.close()
    return operation


def is_netem(data: bytes) -> bool:
    ((kind, _, _, body),) = rtnetlink.messages(data)
    return kind == rtnetlink.RTM_NEWQDISC and b"netem\0" in bytes(body)


def passed(lab: RunningLab, operation: DelayPort) -> int:
    """Packets that went through an ifb."""
    said = lab.run(operation.node, ["ip", "-j", "-s", "link", "show", operation.ifb_name]).stdout
    return int(json.loads(said)[0]["stats64"]["tx"]["packets"])


@pytest.mark.parametrize("qos", [False, True])
def test_arrivals_go_through_the_ifb_and_on_as_before(sandbox: Any, qos: bool) -> None:
    lab = sandbox.deploy(tiny(sandbox, qos=qos)).lab
    switch = "p1-s1-rail1:down1"
    before = seen(lab, "p1-s1-rail1")
    assert arrived(lab, 5) == 5
    operation = through_ifb(lab, switch)
    assert arrived(lab, 50) == 50
    assert passed(lab, operation) >= 50
    through_ifb(lab, switch, undo=True)
    assert arrived(lab, 5) == 5
    assert seen(lab, "p1-s1-rail1") == before
    sandbox.destroy()


def test_a_lab_says_who_delays_and_its_base_rtt_is_the_model(sandbox: Any) -> None:
    delay = Delay(value=Duration.parse("2us"), by=DelayBy.ENDPOINT)
    lab = sandbox.deploy(sandbox.model(uplink=UplinkParams(delay=delay)), k=1000.0).lab
    assert lab.record.delay_by in ("kernel", "endpoint")
    assert "by endpoint" in sandbox.cli("inspect", "links", "-n", lab.name).stdout
    assert "TCP and kernel RDMA get none" in sandbox.cli("inspect", "scale", "-n", lab.name).stdout
    report = measure_rtt(lab, probes=10)
    assert {(path.switches, path.endpoint_ns) for path in report.paths} == {(1, 0), (3, 8_000_000)}
    for path in report.paths:
        assert path.status is not CheckStatus.FAIL
        assert path.achieved_ns is not None and path.achieved_ns < 8_000_000, "the kernel adds nothing"
        assert path.lost == 0
    sandbox.destroy()


def netem() -> str:
    """Why this kernel has no netem; "" if it has."""
    return probe_kernel()["qdisc.netem"]


@pytest.mark.may_skip
def test_kernel_delay_is_refused_where_the_kernel_has_none(sandbox: Any) -> None:
    if not netem():
        pytest.skip("this kernel has netem")
    delay = Delay(value=Duration.parse("2us"), by=DelayBy.KERNEL)
    with pytest.raises(CapabilityError, match="CONFIG_NET_SCH_NETEM"):
        sandbox.deploy(sandbox.model(uplink=UplinkParams(delay=delay)))
    assert sandbox.leftovers() == []


@pytest.mark.may_skip
@pytest.mark.parametrize("qos", [False, True])
def test_netem_delays_as_modelled_and_live(sandbox: Any, qos: bool) -> None:
    if why := netem():
        pytest.skip(f"netem: {why}")
    delay = Delay(value=Duration.parse("2us"), by=DelayBy.KERNEL, jitter=Duration.parse("100ns"))
    model = sandbox.model(uplink=UplinkParams(delay=delay))
    lab = sandbox.deploy(replace(model, qos=QosPolicy(profiles=(PROFILE,))) if qos else model, k=1000.0).lab
    far = next(path for path in measure_rtt(lab).paths if path.switches == 3)
    assert far.status is not CheckStatus.FAIL
    assert far.achieved_ns is not None and far.achieved_ns > 7_000_000
    with LinkControl(lab) as control:
        control.set(NIC, LinkChange(delay=Duration.parse("5us")), both=True)
        near = next(path for path in measure_rtt(lab).paths if path.a == NIC and path.switches == 1)
        assert near.achieved_ns is not None and near.achieved_ns > 9_000_000
        control.reset_all()
        near = next(path for path in measure_rtt(lab).paths if path.a == NIC and path.switches == 1)
        assert near.achieved_ns is not None and near.achieved_ns < 5_000_000
    sandbox.destroy()
