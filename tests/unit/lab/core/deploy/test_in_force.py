"""What is in force in a lab and speaks against a change of it: links that were changed, cut, or have no power."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.lab.core.deploy.changing.differences import LabChanges
from testbed.lab.core.deploy.changing.in_force import needs_routing, require_links
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.links.recorded import LinkState, WireChange, write_link_state
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.schema.load import load_topology_text

TEXT = "name: x\nfabric: {design: rail-optimized, hosts: 2, gpus: 2, spines: 2}\nqos: {preset: uec}\n"
NIC, OTHER_NIC = "p1-s1-h1:rail1", "p1-s1-h2:rail2"


def lab(**overrides: Any) -> Lab:
    return load_topology_text(
        TEXT, file="x.yml", overrides={key.replace("__", "."): overrides[key] for key in overrides}
    )


def changes_to(new: Lab) -> LabChanges:
    old = plan_lab(lab(), k=1000)
    wanted = keep_numbers(plan_lab(new, k=1000), numbers_of(old))
    before = {f"{port.node}:{port.name}": port.loss for port in old.ports}
    losses = {
        f"{port.node}:{port.name}": port.loss
        for port in wanted.ports
        if port.loss != before.get(f"{port.node}:{port.name}", 0.0)
    }
    routing = {"p1-spine1": {"bgpd": ["x"]}} if old.speakers != wanted.speakers else {}
    return LabChanges(old=old, new=wanted, lab=new, kernel=kernel_changes(old, wanted), routing=routing, losses=losses)


def running(directory: Path, off: str = "", **changes: WireChange) -> RunningLab:
    write_link_state(directory, LinkState(changes={key.replace("__", ":"): item for key, item in changes.items()}))
    fake = SimpleNamespace(name="x", state_directory=directory, nodes_without_links=lambda: {off} - {""})
    return cast(RunningLab, fake)


def changed(directory: Path, port: str, off: str = "", **how: Any) -> RunningLab:
    return running(directory, off, **{port.replace(":", "__"): WireChange(**how)})


def test_a_changed_link_that_a_change_does_not_concern_stays(tmp_path: Path) -> None:
    more_hosts = changes_to(lab(fabric__hosts=3))
    for how in ({"rate_bps": 1000}, {"loss": 0.1}, {"delay_ns": 5}, {"loss_every": 3}):
        require_links(changed(tmp_path, NIC, **how), more_hosts)


def test_a_changed_link_that_a_change_concerns_is_named(tmp_path: Path) -> None:
    slower = changes_to(lab(fabric__nic__rate="200G"))
    with pytest.raises(
        ChangeRefused, match=rf"{NIC} is changed by `link set`, or by a fault.*\(rate_bps 1000\)"
    ) as caught:
        require_links(changed(tmp_path, NIC, rate_bps=1000), slower)
    assert caught.value.hint == f"testbed link reset {NIC} -n x"


def test_of_several_all_are_reset(tmp_path: Path) -> None:
    slower = changes_to(lab(fabric__nic__rate="200G"))
    both = {port.replace(":", "__"): WireChange(loss=0.5) for port in (NIC, OTHER_NIC)}
    with pytest.raises(ChangeRefused, match=f"so are 1 more ports: {OTHER_NIC}") as caught:
        require_links(running(tmp_path, **both), slower)
    assert caught.value.hint == "testbed link reset -n x"


def test_a_link_that_goes_is_named_by_its_other_end_too(tmp_path: Path) -> None:
    fewer = changes_to(lab(fabric__hosts=1))
    with pytest.raises(ChangeRefused, match=OTHER_NIC):
        require_links(changed(tmp_path, OTHER_NIC, loss=0.5), fewer)
    peer = next(port.peer for port in fewer.old.ports if f"{port.node}:{port.name}" == OTHER_NIC)
    with pytest.raises(ChangeRefused, match=peer):
        require_links(changed(tmp_path, peer, loss=0.5), fewer)


@pytest.mark.parametrize("how", [{"up": False}, {"silent": True}])
def test_routing_is_not_waited_for_over_a_link_that_is_cut(tmp_path: Path, how: dict[str, bool]) -> None:
    more_hosts = changes_to(lab(fabric__hosts=3))
    assert needs_routing(more_hosts)
    with pytest.raises(ChangeRefused, match=f"{NIC} is cut, and routing that changes would be waited for in vain"):
        require_links(changed(tmp_path, NIC, **how), more_hosts)


def test_a_node_without_power_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ChangeRefused, match="p1-s1-h1 has no power") as caught:
        require_links(changed(tmp_path, NIC, off="p1-s1-h1", up=False), changes_to(lab(fabric__hosts=3)))
    assert caught.value.hint == "testbed power on p1-s1-h1 -n x"


def test_a_change_of_numbers_alone_needs_no_routing(tmp_path: Path) -> None:
    deeper = changes_to(lab(qos__buffer__alpha=0.5))
    assert deeper.kernel or deeper.old.tables != deeper.new.tables
    assert not needs_routing(deeper)


def test_a_loss_that_the_file_declares_now_is_a_change_of_that_link(tmp_path: Path) -> None:
    lossy = changes_to(lab(fabric__uplink__loss=0.01))
    assert lossy.losses and lossy
    port = next(iter(lossy.losses))
    with pytest.raises(ChangeRefused, match=port):
        require_links(changed(tmp_path, port, loss=0.5), lossy)
