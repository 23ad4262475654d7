"""RDMA devices: which ports get one, their names, the messages, and why a machine cannot give them."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from fake_kernel import FakeKernel, FakeMachine

from testbed.base.errors import CapabilityError, DriverError, SpecError
from testbed.base.linux.modules import ModuleState
from testbed.base.linux.rtnetlink import attributes, messages
from testbed.lab.core.deploy.mechanisms import require_rdma
from testbed.lab.core.drivers.netlink import rdma
from testbed.lab.core.fabric import NicParams, generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.model import Lab, Rdma
from testbed.lab.core.plan.hosts import LONGEST_NAME, device_name
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode, CreateRdma, Operation, StartRouting
from testbed.lab.core.schema.load import load_topology_text

WRITTEN = """
name: {name}
topology:
  nodes:
    leaf: {{kind: switch, role: rail}}
    h1: {{kind: host, rdma: rxe}}
    h2: {{kind: host}}
  links:
    - endpoints: ["h1:eth1", "leaf:down1"]
    - endpoints: ["h1:eth2", "leaf:down2"]
    - endpoints: ["h2:eth1", "leaf:down3"]
"""


def generated(**nic: object) -> Lab:
    params = FabricParams(design="rail-optimized", hosts=2, gpus=2, spines=2, nic=NicParams(**nic))  # type: ignore[arg-type]
    return generate_fabric(params, name="rd")


def devices(plan: LabPlan) -> list[CreateRdma]:
    return [item for item in plan.operations if isinstance(item, CreateRdma)]


def test_each_gpu_nic_of_a_generated_host_gets_a_device() -> None:
    plan = plan_lab(generated(rdma=Rdma.RXE), k=1000)
    assert [item.device for item in devices(plan)] == [
        "rd-p1-s1-h1-rail1",
        "rd-p1-s1-h1-rail2",
        "rd-p1-s1-h2-rail1",
        "rd-p1-s1-h2-rail2",
    ]
    kinds = [type(item) for item in plan.operations]
    assert kinds[-len(plan.switches) - 4 : -len(plan.switches)] == [CreateRdma] * 4, "once interfaces have addresses"
    assert str(devices(plan)[0]) == "create rxe device rd-p1-s1-h1-rail1 on p1-s1-h1:rail1"
    assert devices(plan_lab(generated(), k=1000)) == []


def test_a_port_of_a_generated_host_that_is_on_no_rail_gets_none() -> None:
    lab = load_topology_text(
        "name: rd\nfabric: {design: single-switch, hosts: 2, gpus: 1, nic: {rdma: rxe}}\ntopology:\n"
        '  nodes: {probe: {kind: host}}\n  links: [{endpoints: ["probe:eth1", "p1-s1-h1:extra1"]}]\n',
        file="x.yml",
    )
    assert [(item.node, item.name) for item in devices(plan_lab(lab, k=1000))] == [
        ("p1-s1-h1", "rail1"),
        ("p1-s1-h2", "rail1"),
    ]


@pytest.mark.parametrize(
    ("said", "hosts"),
    [("kinds: {host: {rdma: rxe}}", ["p1-s1-h1", "p1-s1-h2"]), ("nodes: {p1-s1-h2: {rdma: rxe}}", ["p1-s1-h2"])],
)
def test_it_may_be_said_of_the_fabrics_hosts(said: str, hosts: list[str]) -> None:
    text = f"name: rd\nfabric: {{design: single-switch, hosts: 2, gpus: 1}}\ntopology: {{{said}}}\n"
    plan = plan_lab(load_topology_text(text, file="x.yml"), k=1000)
    assert [item.node for item in devices(plan)] == hosts


def test_every_nic_of_a_written_host_gets_a_device() -> None:
    lab = load_topology_text(WRITTEN.format(name="rw"), file="x.yml")
    assert [item.device for item in devices(plan_lab(lab, k=1000))] == ["rw-h1-eth1", "rw-h1-eth2"]


def test_a_switch_has_no_rdma() -> None:
    with pytest.raises(SpecError) as caught:
        load_topology_text(WRITTEN.format(name="rw").replace("role: rail", "role: rail, rdma: rxe"), file="x.yml")
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == ("rdma-of-switch", "topology.nodes.leaf.rdma")
    assert problem.position is not None and problem.position.line == 5


@pytest.mark.parametrize("text", ["rdma: roce", "rdma: true", "rdma: null", "rdma: [rxe]"])
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_topology_text(WRITTEN.format(name="rw").replace("rdma: rxe", text), file="x.yml")
    assert "topology.nodes.h1.rdma" in str(caught.value)


def test_names_fit_and_stay_apart() -> None:
    long = [device_name("l" * 24, "n" * 47 + last, "rail1") for last in "ab"]
    assert {len(name) for name in long} == {LONGEST_NAME}
    assert long[0] != long[1]
    assert device_name("l" * 24, "n" * 32, "rail1") == f"{'l' * 24}-{'n' * 32}-rail1"


def test_messages_name_the_device_its_kind_and_its_interface() -> None:
    ((kind, flags, _, body),) = messages(rdma.new_rxe_device("lab-h1-rail1", "rail1"))
    assert (kind, flags & 1) == (5 << 10 | 3, 1)
    assert {number: bytes(value) for number, value in attributes(body)} == {
        2: b"lab-h1-rail1\0",
        65: b"rxe\0",
        51: b"rail1\0",
    }
    ((kind, _, _, body),) = messages(rdma.delete_device(7))
    assert (kind, [(number, bytes(value)) for number, value in attributes(body)]) == (5 << 10 | 4, [(1, b"\x07\0\0\0")])


def test_an_older_kernel_is_refused_with_the_reason() -> None:
    with pytest.raises(
        CapabilityError, match=r"needs Linux 7\.1 or newer, and this is 6\.12\.9-amd64: before"
    ) as caught:
        rdma.require_rxe("6.12.9-amd64")
    assert caught.value.missing == "Linux 7.1"
    assert "lab VM" in (caught.value.hint or "")


def test_a_kernel_without_the_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "module_state", lambda name: ModuleState.ABSENT)
    with pytest.raises(CapabilityError, match="this kernel has no rdma_rxe, ib_uverbs"):
        rdma.require_rxe("7.1.0")


def test_exclusive_mode_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rdma, "module_state", lambda name: ModuleState.BUILT_IN)
    (tmp_path / "mode").write_text("N\n")
    with pytest.raises(CapabilityError, match="mode exclusive") as caught:
        rdma.require_rxe("7.1.0", tmp_path / "mode")
    assert "rdma system set netns shared" in (caught.value.hint or "")
    (tmp_path / "mode").write_text("Y\n")
    rdma.require_rxe("7.1.0", tmp_path / "mode")


def test_a_lab_without_rdma_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("not asked for")

    monkeypatch.setattr("testbed.lab.core.deploy.mechanisms.require_rxe", refuse)
    require_rdma(generated())
    with pytest.raises(AssertionError, match="not asked for"):
        require_rdma(generated(rdma=Rdma.RXE))


def realise(machine: FakeMachine, plan: LabPlan) -> tuple[FakeKernel, dict[str, int]]:
    kernel = FakeKernel(plan.lab, machine=machine)
    identities = dict(kernel.create_nodes([item for item in plan.operations if isinstance(item, CreateNode)]))
    kernel.publish()
    kernel.apply([item for item in plan.operations if not isinstance(item, CreateNode | StartRouting)])
    return kernel, identities


def test_devices_go_with_their_lab() -> None:
    machine = FakeMachine()
    lab = generated(rdma=Rdma.RXE)
    kernel, identities = realise(machine, plan_lab(lab, k=1000))
    other, _ = realise(machine, plan_lab(replace(lab, name="re"), slot=1, k=1000))
    assert len(machine.rdma) == 8
    kernel.remove(identities)
    assert {name.partition("-")[0] for name in machine.rdma} == {"re"}
    other.close()


@pytest.mark.parametrize(
    ("operation", "refusal"),
    [
        (CreateRdma(node="p1-s1-h1", name="rail9", device="other"), errno.ENODEV),
        (CreateRdma(node="p1-s1-h1", name="rail1", device="rd-p1-s1-h1-rail1"), errno.EEXIST),
    ],
)
def test_what_cannot_be_is_refused(operation: Operation, refusal: int) -> None:
    kernel, _ = realise(FakeMachine(), plan_lab(generated(rdma=Rdma.RXE), k=1000))
    with pytest.raises(DriverError) as caught:
        kernel.apply([operation])
    assert caught.value.errno == refusal
