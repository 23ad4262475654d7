"""Every topology we ship, up to a hundred nodes, deploys, converges, passes its own check and leaves no trace."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observed import observe

from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.deploy.watch.probe import Probe, Prober
from testbed.lab.core.model import Lab, Protocol
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TOPOLOGIES = sorted((Path(__file__).parents[3] / "topologies").glob("*.yml"))
LARGEST = 100
"""Nodes; larger ones are benchmarks."""


def _named(lab: Lab, name: str) -> Lab:
    return replace(lab, name=name)


THOROUGH = (
    *("converged", "dcqcn", "dcqcn-victim", "dual-plane", "dual-rail-switch", "mixed", "mlag-hosts", "mlag-tenants"),
    *("multi-plane", "multi-pod", "pod", "qos-overrides", "qp-hash", "rail-qos", "shared-nic", "six-by-four"),
    *("two-tenants", "uec-spray"),
)
"""Topologies of which others have all parts."""


@pytest.mark.may_skip
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.thorough] if path.stem in THOROUGH else [])
        for path in TOPOLOGIES
    ],
)
def test_a_shipped_topology_converges_and_passes_its_check(sandbox: Any, path: Path) -> None:
    model = load_topology(path)
    if len(model.nodes) > LARGEST:
        pytest.skip(f"{len(model.nodes)} nodes: deployed by the benchmarks")
    if any(node.container is not None for node in model.nodes):
        pytest.skip("nodes in containers: deployed by the benchmarks, with an engine of their own")
    lab = sandbox.deploy(_named(model, sandbox.name())).lab
    report = check_lab(lab)
    assert report.exit_code == 0, [result for result in report.results if result.status != "pass"]
    assert {result.name for result in report.results} >= {"nodes", "links", "sessions", "ecmp", "rails", "path mtu"}


@pytest.mark.parametrize(
    ("protocol", "bfd"),
    [
        (Protocol.EBGP, "off"),
        (Protocol.IBGP, "auto"),
        pytest.param(Protocol.EBGP, "auto", marks=pytest.mark.thorough),
        pytest.param(Protocol.IBGP, "off", marks=pytest.mark.thorough),
    ],
)
def test_both_protocols_converge_with_and_without_bfd(sandbox: Any, protocol: Protocol, bfd: str) -> None:
    model = sandbox.model(bfd=bfd)
    model = replace(model, routing=replace(model.routing, protocol=protocol))
    lab = sandbox.deploy(model).lab
    assert (lab.model.routing.bfd is not None) == (bfd == "auto")
    report = check_lab(lab)
    assert report.exit_code == 0, [result for result in report.results if result.status != "pass"]
    asns = {session.remote_asn for session in lab.sessions()}
    assert (len(asns) == 1) == (protocol is Protocol.IBGP)
    assert {session.bfd for session in lab.sessions()} == ({"up"} if bfd == "auto" else {""})


def test_three_tiers_converge(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.model(design="rail-optimized", pods=2, segments=1, super_spines=2)).lab
    report = check_lab(lab)
    assert report.exit_code == 0, [result for result in report.results if result.status != "pass"]


@pytest.mark.parametrize(("design", "per_switch"), [("multi-rail-switch", 8), ("dual-rail-switch", 2)])
def test_spines_see_only_the_aggregate_of_a_summarising_switch(sandbox: Any, design: str, per_switch: int) -> None:
    model = sandbox.model(design=design, gpus=8, hosts=2, segments=2)
    lab = sandbox.deploy(model).lab
    report = check_lab(lab)
    assert report.exit_code == 0, [result for result in report.results if result.status != "pass"]
    rail_prefixes = {nic.address.network for host in lab.plan.hosts for nic in host.nics}
    assert len(rail_prefixes) == 16
    for spine in (node.name for node in lab.model.switches if node.role == "spine"):
        prefixes = {route.prefix for route in lab.routes(spine) if route.protocol == "bgp"}
        rails = {prefix for prefix in prefixes if any(prefix.supernet_of(rail) for rail in rail_prefixes)}
        assert {prefix.prefixlen for prefix in rails} == {24}
        assert len(rails) == len(rail_prefixes) / per_switch


def test_isolated_rails_do_not_reach_each_other(sandbox: Any) -> None:
    """Rail-only is right as it is: the check passes, and a datagram across rails arrives nowhere."""
    model = sandbox.model(design="rail-only", segments=None, spines=None, hosts=2, gpus=2)
    lab = sandbox.deploy(model).lab
    assert check_lab(lab).exit_code == 0
    far = next(nic for nic in lab.plan.hosts[1].nics if nic.rail == 2)
    near = next(nic for nic in lab.plan.hosts[0].nics if nic.rail == 1)
    same = next(nic for nic in lab.plan.hosts[1].nics if nic.rail == 1)
    across, along = Probe(source=near, target=far), Probe(source=near, target=same)
    with closing(Prober(lab.name, [near, far, same])) as prober:
        assert prober.lost([across, along]) == [across]


def test_a_host_sends_through_the_rail_whose_address_it_uses(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.model()).lab
    source, target = lab.plan.hosts[0], lab.plan.hosts[-1]
    for nic in source.nics:
        for other in target.nics:
            route = lab.run(
                source.node, ["ip", "-o", "route", "get", str(other.address.ip), "from", str(nic.address.ip)]
            ).stdout
            assert f" dev {nic.name} " in route, route
    first, second = source.nics
    with closing(Prober(lab.name, [second, target.nics[0]])) as prober:
        before = lab.counters()
        assert prober.lost([Probe(source=second, target=target.nics[0], size_bytes=1000)] * 20) == []
        after = lab.counters()

    def sent(name: str) -> int:
        return after[source.node, name].tx_bytes - before[source.node, name].tx_bytes

    assert sent(second.name) > 20 * 1000
    assert sent(first.name) < 5 * 1000


def test_deployed_labs_are_what_the_plan_says(sandbox: Any) -> None:
    """Every interface, address, MAC, MTU and shaped rate read back from the kernel."""
    lab = sandbox.deploy(sandbox.model(), wait=False).lab
    assert plan_lab(lab.model, slot=lab.record.slot, k=lab.record.k) == lab.plan
    observed = observe(lab.name, [node.name for node in lab.model.nodes])
    for port in lab.plan.ports:
        interface = observed[port.node].interfaces[port.name]
        assert (interface.ifindex, interface.mac, interface.mtu_bytes) == (port.ifindex, port.mac, port.mtu_bytes)
        assert interface.up
        assert interface.rate_bps == pytest.approx(port.rate_bps, rel=0.001, abs=8)


def test_slow_ports_are_probed_no_faster_than_they_carry(sandbox: Any) -> None:
    """At 2 Mbit/s a port holds what a check used to send at once for a second and more, and dropped the rest."""
    lab = sandbox.deploy(sandbox.model(gpus=8, hosts=2), k=200_000.0).lab
    report = check_lab(lab)
    assert report.exit_code == 0, [result for result in report.results if result.failures]
