"""InfiniBand back ends of labs that are changed while they are up: the subnet is what OpenSM makes of the new file, and
nodes beside it notice nothing."""

import os
import random
import signal
import threading
from typing import Any

import pytest
from cut_short import Bench
from lab_snapshot import differences, snapshot
from observed import observe
from waiting import until

from testbed.base.installation.packages import missing_programs
from testbed.endpoints.infiniband.adapter import AdapterError, HostAdapter
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.differences import LabChanges, changes_of
from testbed.lab.core.deploy.changing.drift.lab_drift import find_drift
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.plan.changes import Allow, ChangeRow
from testbed.lab.features.infiniband.live import LiveSubnet
from testbed.lab.features.infiniband.offline import compute_subnet
from testbed.lab.features.infiniband.plane import PROGRAMS, SEARCH
from testbed.lab.features.infiniband.running import noted_pids
from testbed.protocols.infiniband.subnet import Subnet

pytestmark = [
    pytest.mark.netns,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        bool(missing_programs(PROGRAMS, SEARCH)),
        reason="what InfiniBand needs is not installed: `testbed doctor` says so",
    ),
]
K = 30_000.0
TEXT = """name: {{name}}
scale: {{{{time: 30000}}}}
fabric:
  design: rail-optimized
  segments: 2
  hosts: {hosts}
  gpus: 1
  nic: {{{{per: gpu, ports: 1, rate: {rate}}}}}
  spines: {spines}
  uplink: {{{{rate: 400G, count: 1}}}}
  {layer}
networks: {{{{management: {{{{design: out-of-band}}}}}}}}
"""
SOURCE, TARGET = "p1-s1-h1:rail1", "p1-s2-h2:rail1"
BESIDE = ("p1-s1-h1", "p1-s2-h2", "mgmt-sw1")
"""Hosts that no change is about, and the switch of the network beside the subnet."""


def text(infiniband: str = "", *, hosts: int = 2, spines: int = 2, rate: str = "400G", ethernet: bool = False) -> str:
    """A file of two leaves; `infiniband` are the settings of its subnet."""
    inner = infiniband.replace("{", "{{").replace("}", "}}")
    layer = "routing: {{bfd: false}}" if ethernet else "link_layer: infiniband"
    if inner:
        layer += f"\n  infiniband: {inner}"
    return TEXT.format(hosts=hosts, spines=spines, rate=rate, layer=layer)


def changed(sandbox: Any, wanted: str, *allow: Allow) -> tuple[RunningLab, LabChanges]:
    """Change the lab, which has nothing left to change then, and nothing wrong."""
    model = sandbox.load(wanted)
    done = apply_lab(model, sandbox.state, ApplyOptions(k=K, allow=frozenset(allow)))
    sandbox.note_daemons()
    lab = sandbox.running()
    assert not changes_of(lab, model, K).rows and not find_drift(lab).rows
    found = check_lab(lab)
    assert found, str(found)
    return lab, done


def of_subnet(done: LabChanges) -> list[ChangeRow]:
    return [row for row in done.rows if "subnet" in row.what]


def state_of(lab: RunningLab) -> dict[str, Any]:
    """All that the nodes of a subnet hold."""
    reader = LiveSubnet(lab).reader
    subnet = reader.read()
    return {
        "subnet": subnet,
        "lanes": dict(reader.lane_tables()) if subnet.vls > 1 else {},
        "keys": reader.pkey_tables(),
        "managers": [(state.hca, state.priority, state.state) for state in reader.managers()],
    }


def tables(subnet: Subnet) -> dict[str, Any]:
    """What OpenSM has written of a subnet, whichever manager it was."""
    return {
        name: getattr(subnet, name)
        for name in ("nodes", "links", "lfts", "vls", "sl2vl", "vl_low", "vl_high", "sls", "partitions", "engine")
    }


def carry(lab: RunningLab, frames: int = 20) -> None:
    """Send frames from the one leaf to the other, each of which must come."""
    wires = LiveSubnet(lab).wires
    with HostAdapter(wires.adapter(TARGET), 20.0) as target, HostAdapter(wires.adapter(SOURCE), 20.0) as source:
        for number in range(frames):
            source.send(target.lid, bytes(256), psn=number)
            assert target.receive().psn == number


RED = "{partitions: {red: {nodes: ['p1-s1-*'], sl: 0}, blue: ['p1-s2-*']}}"
LANES = "{vls: 2, sl2vl: {0: 1, 1: 0}, vl_arbitration: {high: {1: 64}, low: {0: 8, 1: 8}}}"
TWO = "{sm: {nodes: [p1-s2-h1, p1-s1-h1]}}"


@pytest.mark.thorough
def test_what_managers_take_while_they_run_is_what_a_new_subnet_would_have(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.load(text()), k=K).lab
    first, seen, beside = state_of(lab), snapshot(lab), observe(lab.name, BESIDE)
    pids = noted_pids(LiveSubnet(lab).plane.directory)
    carry(lab)
    for settings, told in ((RED, True), (LANES, True), ("{sm: {sweep: 5s}}", True), ("{routing: [updn]}", False)):
        lab, _ = changed(sandbox, text(settings))
        fabric = lab.model.infiniband
        assert fabric is not None
        assert tables(LiveSubnet(lab).reader.read()) == tables(compute_subnet(fabric)), settings
        assert (noted_pids(LiveSubnet(lab).plane.directory) == pids) is told, "managers that are told run on"
        if settings is not RED:
            carry(lab)
        lab, _ = changed(sandbox, text())
        assert state_of(lab) == first, settings
        pids = noted_pids(LiveSubnet(lab).plane.directory)
    carry(lab)
    assert differences(snapshot(lab), seen) == [], "there and back"
    assert observe(lab.name, BESIDE) == beside


@pytest.mark.thorough
def test_managers_come_and_go_and_another_is_the_master(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.load(text()), k=K).lab
    first = state_of(lab)
    lab, done = changed(sandbox, text(TWO))
    assert [row.what for row in of_subnet(done)] == ["subnet managers"]
    found = state_of(lab)
    assert [state for *_, state in found["managers"]] == ["master", "standby"]
    assert tables(found["subnet"]) == tables(first["subnet"]), "HCAs keep their LIDs, and switches their tables"
    carry(lab)
    lab, _ = changed(sandbox, text())
    assert state_of(lab) == first


@pytest.mark.thorough
def test_no_frame_is_lost_while_managers_begin_again(sandbox: Any) -> None:
    """Switches keep their tables until there are new ones, and those are in force between two frames."""
    lab = sandbox.deploy(sandbox.load(text()), k=K).lab
    wires = LiveSubnet(lab).wires
    ended, done, sent, received = threading.Event(), threading.Event(), 0, []
    with HostAdapter(wires.adapter(TARGET), 20.0) as target, HostAdapter(wires.adapter(SOURCE), 20.0) as source:

        def receive() -> None:
            while not ended.is_set() or len(received) < sent:
                received.append(target.receive().psn)

        reader = threading.Thread(target=receive)

        def change() -> None:
            for one in ("{routing: [updn]}", TWO):
                changed(sandbox, text(one))
            done.set()

        changer = threading.Thread(target=change)
        reader.start()
        changer.start()
        while changer.is_alive():
            source.send(target.lid, bytes(256), psn=sent)
            sent += 1
            changer.join(0.002)
        ended.set()
        source.send(target.lid, bytes(256), psn=sent)
        sent += 1
        reader.join(60.0)
    assert done.is_set() and sent > 100 and received == list(range(sent))
    assert not wires.status()["lost"]


@pytest.mark.thorough
def test_another_network_is_another_subnet_alone(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.load(text()), k=K).lab
    first, seen, beside = state_of(lab), snapshot(lab), observe(lab.name, BESIDE)
    for wanted in (text(hosts=3), text(spines=1), text("{routing: [updn]}", hosts=3, spines=1)):
        with pytest.raises(ChangeRefused, match="subnet: 4 HCAs, 4 switches, 8 links -> ") as refused:
            apply_lab(sandbox.load(wanted), sandbox.state, ApplyOptions(k=K))
        assert "--allow restart" in str(refused.value.hint) and state_of(sandbox.running()) == first
        lab, _ = changed(sandbox, wanted, Allow.RESTART)
        fabric = lab.model.infiniband
        assert fabric is not None
        assert LiveSubnet(lab).reader.read() == compute_subnet(fabric)
        carry(lab)
        assert lab.run("p1-s1-h1", ("ibhosts",), timeout_s=60).stdout.count("Ca") == len(lab.model.hosts)
        lab, _ = changed(sandbox, text(), Allow.RESTART)
        assert state_of(lab) == first
    assert differences(snapshot(lab), seen) == [], "there and back"
    assert observe(lab.name, BESIDE) == beside


@pytest.mark.thorough
def test_links_that_are_down_stay_down_and_a_program_keeps_its_hca_unless_that_is_allowed(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.load(text()), k=K).lab
    live = LiveSubnet(lab)
    wires = live.wires
    live.set_link("p1-s2-rail1:uplink2", up=False)
    apply_lab(sandbox.load(text(hosts=3)), sandbox.state, ApplyOptions(k=K, allow=frozenset({Allow.RESTART})))
    sandbox.note_daemons()
    live = LiveSubnet(sandbox.running())
    assert [state.a for state in live.links() if not state.up] == ["p1-s2-rail1:uplink2"]
    live.set_link("p1-s2-rail1:uplink2", up=True)
    with HostAdapter(wires.adapter(SOURCE), 20.0) as source:
        with pytest.raises(ChangeRefused, match="1 HCAs that programs have open"):
            apply_lab(sandbox.load(text("{voq: true}", hosts=3)), sandbox.state, ApplyOptions(k=K))
        assert live.open_hcas() == 1
        changed(sandbox, text("{voq: true}", hosts=3), Allow.RESTART)
        with pytest.raises((AdapterError, OSError)):
            source.send(source.lid, bytes(256), psn=0)
            source.receive()
    lab, done = changed(sandbox, text("{voq: true}", hosts=3, rate="200G"))
    assert [(row.what, row.allow) for row in of_subnet(done)] == [("wires of the subnet", "")], "nobody uses them"
    carry(lab)


@pytest.mark.thorough
@pytest.mark.frr
def test_the_link_layer_of_a_back_end_is_another_one_and_back(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.load(text(ethernet=True)), k=K).lab
    seen, hosts = (
        snapshot(lab),
        {node.name: lab.identities[node.name] for node in lab.model.nodes if node.name in BESIDE},
    )
    lab, done = changed(sandbox, text())
    assert not [row for row in done.rows if row.allow]
    fabric = lab.model.infiniband
    assert fabric is not None and LiveSubnet(lab).reader.read() == compute_subnet(fabric)
    carry(lab)
    assert {name: lab.identities[name] for name in hosts} == hosts, "hosts are the same nodes"
    lab, _ = changed(sandbox, text(ethernet=True))
    assert differences(snapshot(lab), seen) == [], "there and back"
    assert {name: lab.identities[name] for name in hosts} == hosts


@pytest.mark.thorough
def test_a_subnet_whose_ibsim_has_ended_is_repaired(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.load(text()), k=K).lab
    first = state_of(lab)
    os.kill(noted_pids(LiveSubnet(lab).plane.directory)["ibsim"], signal.SIGKILL)
    until(lambda: LiveSubnet(lab).ended() == ["ibsim"], "ibsim ends")
    assert [row.what for row in find_drift(lab).rows] == ["the subnet, with its ibsim"]
    apply_lab(sandbox.load(text()), sandbox.state, ApplyOptions(k=K, repair=True))
    sandbox.note_daemons()
    assert state_of(sandbox.running()) == first and check_lab(sandbox.running())


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "points", [pytest.param(3, marks=pytest.mark.thorough), pytest.param(30, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("what", ["told", "network", "link-layer"])
def test_a_change_of_a_subnet_killed_anywhere_is_finished_or_taken_back(sandbox: Any, what: str, points: int) -> None:
    after = {"told": text(RED), "network": text(hosts=3), "link-layer": text(ethernet=True)}[what]
    before, after = (one.format(name=sandbox.name()) for one in (text(), after))
    Bench(sandbox, before, after, ["restart"]).kill_at(points, random.Random(f"{what} {points}"))
    assert check_lab(sandbox.running())
