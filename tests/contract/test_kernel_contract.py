"""What every kernel of nodes does, tested alike on the fake and on network namespaces of this machine."""

import errno
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import pytest
from fake_kernel import FakeKernel, FakeMachine
from observed import ObservedNode, observe

from testbed.base.errors import DriverError, NameInUse
from testbed.base.linux.namespaces import NETNS_DIRECTORY, identities_of
from testbed.base.names import namespace_name
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.model import Guards, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    AddRule,
    CreateBridge,
    CreateNode,
    CreateVeth,
    GuardedPort,
    GuardSwitch,
    Operation,
    SetSysctl,
    SetUp,
    ShapePort,
    StartRouting,
    VethEnd,
)
from testbed.lab.core.plan.overlay_operations import CreateVrf
from testbed.lab.core.schema.load import load_topology_text

_numbers = itertools.count(1)
NodeKernel = FakeKernel | NetnsKernel
NODES = [CreateNode(node="a", cpu_slot=0), CreateNode(node="b", cpu_slot=1)]
VETH = CreateVeth(
    a=VethEnd(node="a", name="rail1", ifindex=1001, mac="02:00:00:00:00:01"),
    b=VethEnd(node="b", name="down1", ifindex=1002, mac="02:00:00:00:00:02", master=300),
    mtu_bytes=4500,
)
BRIDGE = CreateBridge(node="b", name="br-rail1", ifindex=300, mac="02:00:00:00:00:03", mtu_bytes=4500)
SHAPE = ShapePort(node="a", name="rail1", ifindex=1001, rate_bps=40_000_000, burst_bytes=20_000)
ADDRESS = AddAddress(node="a", name="rail1", ifindex=1001, address=IPv4Interface("10.0.0.2/24"))
UP = SetUp(node="a", name="rail1", ifindex=1001)
ROUTE = AddRoute(
    node="a",
    destination=IPv4Network("0.0.0.0/0"),
    gateway=IPv4Address("10.0.0.1"),
    ifindex=1001,
    table=101,
    source=IPv4Address("10.0.0.2"),
)
ON_LINK = AddRoute(node="a", destination=IPv4Network("10.9.0.0/24"), gateway=None, ifindex=1001, table=101)
RULE = AddRule(node="a", source=IPv4Address("10.0.0.2"), table=101, priority=1001)
GUARD = GuardSwitch(
    node="b",
    guards=Guards.all(),
    ports=(
        GuardedPort(
            name="down1",
            ifindex=1002,
            mac="02:00:00:00:00:01",
            addresses=(IPv4Address("10.0.0.2"),),
            gateway=IPv4Address("10.0.0.1"),
        ),
    ),
    switches=(IPv4Address("10.0.0.1"),),
    stations=("02:00:00:00:00:01", "02:00:00:00:00:03"),
)
SYSCTL = SetSysctl(node="b", key="net/ipv4/ip_forward", value="1")
ALL: tuple[Operation, ...] = (SYSCTL, BRIDGE, VETH, SHAPE, GUARD, UP, ADDRESS, ROUTE, RULE)


@dataclass
class Bench:
    """A kind of kernel, and how to make somebody else's namespace on it."""

    kind: str
    lab: str
    machine: FakeMachine | None = None

    def kernel(self, nodes: tuple[str, ...] = ()) -> NodeKernel:
        if self.machine is not None:
            return FakeKernel(self.lab, nodes, machine=self.machine)
        return NetnsKernel(self.lab, nodes)

    def observe(self, nodes: Sequence[str] = ("a", "b")) -> Mapping[str, ObservedNode]:
        """What the kernel has of published nodes."""
        if self.machine is not None:
            return FakeKernel(self.lab, nodes, machine=self.machine).observe()
        return observe(self.lab, nodes)

    def add_foreign(self, node: str) -> int:
        name = namespace_name(self.lab, node)
        if self.machine is not None:
            return self.machine.add_foreign(name)
        subprocess.run(["ip", "netns", "add", name], check=True)
        return self._identities()[name]

    @staticmethod
    def _identities() -> dict[str, int]:
        found = identities_of(str(path) for path in NETNS_DIRECTORY.iterdir())
        return {Path(path).name: identity for path, identity in found.items()}

    def published(self) -> dict[str, int]:
        if self.machine is not None:
            found = {name: item.identity for name, item in self.machine.published.items()}
        else:
            found = self._identities()
        return {name: identity for name, identity in found.items() if name.startswith(f"{self.lab}-")}


@pytest.fixture(params=["fake", pytest.param("netns", marks=pytest.mark.netns)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    lab = f"ct{os.getpid()}x{next(_numbers)}"
    made = Bench(kind=request.param, lab=lab, machine=FakeMachine() if request.param == "fake" else None)
    yield made
    if made.machine is None:
        left = made.published()
        for name in left:
            subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.fixture
def kernel(bench: Bench) -> Iterator[NodeKernel]:
    """A kernel with the nodes a and b, published."""
    made = bench.kernel()
    identities = made.create_nodes(NODES)
    made.publish()
    yield made
    made.close()
    bench.kernel().remove(identities)
    assert bench.published() == {}


def _rails(name: str) -> Lab:
    return generate_fabric(FabricParams(design="multi-rail-switch", segments=1, hosts=2, gpus=8, spines=2), name=name)


def _tenants(name: str) -> Lab:
    text = f"""
name: {name}
fabric: {{design: rail-optimized, segments: 1, hosts: 3, gpus: 2, spines: 1, overlay: evpn}}
tenants:
  red: {{subnets: {{web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}}}}}
  blue: {{subnets: {{web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h3:rail1"]}}}}}}
"""
    return load_topology_text(text, file="tenants.yml")


def _managed(name: str) -> Lab:
    text = f"""
name: {name}
fabric: {{design: single-switch, hosts: 2, gpus: 1}}
networks: {{management: {{design: out-of-band}}}}
"""
    return load_topology_text(text, file="managed.yml")


LABS = pytest.mark.parametrize("make", [_rails, _tenants, _managed])


def _plan_observed(bench: Bench, make: Callable[[str], Lab]) -> Mapping[str, ObservedNode]:
    """A small planned lab, applied and read back."""
    lab = make(bench.lab)
    plan = plan_lab(lab, slot=7, k=10_000)
    made = bench.kernel()
    creations = [item for item in plan.operations if isinstance(item, CreateNode | CreateVrf)]
    identities = made.create_nodes(creations)
    try:
        made.publish()
        made.apply([item for item in plan.operations if not isinstance(item, CreateNode | CreateVrf | StartRouting)])
        observed = bench.observe([item.node for item in creations])
        for port in plan.ports:
            interface = observed[port.place].interfaces[port.name]
            assert (interface.ifindex, interface.mac, interface.mtu_bytes) == (port.ifindex, port.mac, port.mtu_bytes)
            assert (interface.up, interface.rate_bps // 8) == (True, port.rate_bps // 8)
        for host in plan.hosts:
            assert observed[host.node].rules == len(host.nics)
            for nic in host.nics:
                assert observed[host.node].interfaces[nic.name].addresses == (str(nic.address),)
        return observed
    finally:
        assert made.remove(identities).nodes == len(creations)


@pytest.mark.netns
@LABS
def test_a_planned_lab_is_the_same_in_both(make: Callable[[str], Lab]) -> None:
    real = Bench(kind="netns", lab=f"ct{os.getpid()}x{next(_numbers)}")
    fake = replace(real, kind="fake", machine=FakeMachine())
    assert _plan_observed(fake, make) == _plan_observed(real, make)


@LABS
def test_a_planned_lab_is_there_as_planned(bench: Bench, make: Callable[[str], Lab]) -> None:
    assert _plan_observed(bench, make)
    assert bench.published() == {}


def test_operations_are_seen(bench: Bench, kernel: NodeKernel) -> None:
    kernel.apply(ALL)
    observed = bench.observe()
    rail = observed["a"].interfaces["rail1"]
    assert (rail.ifindex, rail.mac, rail.mtu_bytes, rail.up) == (1001, "02:00:00:00:00:01", 4500, True)
    assert (rail.addresses, rail.rate_bps, observed["a"].rules) == (("10.0.0.2/24",), 40_000_000, 1)
    down = observed["b"].interfaces["down1"]
    assert (down.master, down.up, down.addresses, down.rate_bps) == (300, False, (), 0)
    assert set(observed["a"].interfaces) == {"rail1"}
    assert set(observed["b"].interfaces) == {"br-rail1", "down1"}


@pytest.mark.parametrize(
    "operation", [BRIDGE, VETH, SHAPE, GUARD, ADDRESS, ROUTE, RULE], ids=lambda item: type(item).__name__
)
def test_what_exists_is_refused_by_name(bench: Bench, kernel: NodeKernel, operation: Operation) -> None:
    kernel.apply(ALL)
    before = bench.observe()
    with pytest.raises(DriverError) as caught:
        kernel.apply([operation])
    assert caught.value.errno == errno.EEXIST
    assert caught.value.message.startswith(caught.value.operation)
    assert bench.observe() == before


def test_settings_may_be_repeated(bench: Bench, kernel: NodeKernel) -> None:
    kernel.apply(ALL)
    before = bench.observe()
    kernel.apply([SYSCTL, UP])
    assert bench.observe() == before


@pytest.mark.parametrize("operation", [UP, SHAPE, ADDRESS, ON_LINK], ids=lambda item: type(item).__name__)
def test_an_interface_that_is_not_there_is_refused(kernel: NodeKernel, operation: Operation) -> None:
    with pytest.raises(DriverError) as caught:
        kernel.apply([operation])
    assert caught.value.errno == errno.ENODEV
    assert "rail1" in caught.value.operation or "1001" in caught.value.operation or "10.0.0.1" in caught.value.operation


def test_a_route_needs_its_interface_up_and_its_gateway_on_the_link(kernel: NodeKernel) -> None:
    def refusal(route: AddRoute) -> int:
        with pytest.raises(DriverError) as caught:
            kernel.apply([route])
        return caught.value.errno

    assert refusal(ROUTE) == errno.ENETUNREACH
    kernel.apply([BRIDGE, VETH, ADDRESS])
    assert refusal(ON_LINK) == errno.ENETDOWN
    assert refusal(ROUTE) == errno.ENETUNREACH
    kernel.apply([UP])
    assert refusal(replace(ROUTE, gateway=IPv4Address("10.0.1.1"))) == errno.ENETUNREACH
    kernel.apply([ROUTE, replace(ON_LINK, table=102)])


def test_a_failed_veth_leaves_neither_end(bench: Bench, kernel: NodeKernel) -> None:
    kernel.apply([BRIDGE])
    for end, refusal in (
        (replace(VETH.b, ifindex=300, master=0), errno.EBUSY),
        (replace(VETH.b, name=BRIDGE.name, master=0), errno.EEXIST),
    ):
        with pytest.raises(DriverError) as caught:
            kernel.apply([replace(VETH, b=end)])
        assert caught.value.errno == refusal
    assert set(bench.observe()["a"].interfaces) == set()
    kernel.apply([VETH])


def test_a_sysctl_that_this_kernel_lacks(bench: Bench, kernel: NodeKernel) -> None:
    if bench.machine is not None:
        bench.machine.sysctls = frozenset({SYSCTL.key})
    missing = replace(SYSCTL, key="net/ipv4/no_such_key")
    kernel.apply([replace(missing, optional=True)])
    with pytest.raises(DriverError, match="b: this kernel has no sysctl net/ipv4/no_such_key") as caught:
        kernel.apply([missing])
    assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize("operation", [NODES[0], StartRouting(node="a", daemons=("zebra",))])
def test_what_is_not_for_this_driver_is_refused(kernel: NodeKernel, operation: Operation) -> None:
    with pytest.raises(DriverError, match=type(operation).__name__):
        kernel.apply([operation])


def test_a_name_in_use_is_refused_and_survives_the_undo(bench: Bench) -> None:
    foreign = bench.add_foreign("b")
    kernel = bench.kernel()
    identities = kernel.create_nodes(NODES)
    with pytest.raises(NameInUse, match=f"{bench.lab}-b"):
        kernel.publish()
    kernel.remove(identities)
    assert bench.published() == {f"{bench.lab}-b": foreign}


def test_removing_counts_what_was_there_and_may_be_repeated(bench: Bench) -> None:
    kernel = bench.kernel()
    identities = kernel.create_nodes(NODES)
    assert bench.published() == {}, "invisible until published"
    kernel.publish()
    assert bench.published() == {f"{bench.lab}-{node}": inode for node, inode in identities.items()}
    assert bench.kernel().remove(identities).nodes == 2
    assert bench.kernel().remove(identities).nodes == 0
    assert bench.published() == {}


def test_a_node_that_is_gone_is_named(bench: Bench) -> None:
    with pytest.raises(DriverError, match=f"{bench.lab}-a is gone"):
        bench.kernel(("a",)).apply([UP])
