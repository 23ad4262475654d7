"""The programs and maps that a lab was deployed with stay as large as they are: what does not fit is said before."""

import os
from pathlib import Path

import pytest
from memory_maps import maps_in_memory

from testbed.base.datapath import pins
from testbed.base.datapath.abi import PATHS_MAP
from testbed.base.datapath.maps import LabMaps
from testbed.base.errors import CapabilityError, DriverError
from testbed.lab.core.deploy.changing.carrying.data_path import data_path_obstacles
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text

TEXT = "name: lab\nfabric: {{design: rail-optimized, hosts: {hosts}, gpus: 1, spines: {spines}}}\n"
QOS = "qos: {preset: uec}\n"
ADAPTIVE = "qos: {preset: uec, load_balancing: {mode: adaptive}}\n"


def plan(hosts: int = 2, spines: int = 2, qos: str = QOS) -> LabPlan:
    return plan_lab(load_topology_text(TEXT.format(hosts=hosts, spines=spines) + qos, file="lab.yml"), k=10_000)


def changed(wanted: LabPlan) -> KernelChanges:
    return kernel_changes(plan(), wanted)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory of a lab whose maps have room for 16 ports."""
    pins.lab_directory(tmp_path).mkdir()
    (pins.lab_directory(tmp_path) / PATHS_MAP).touch()
    hold(monkeypatch, maps_in_memory(16))
    return tmp_path


def hold(monkeypatch: pytest.MonkeyPatch, maps: LabMaps) -> None:
    monkeypatch.setattr(LabMaps, "open", lambda *_, **__: maps)


def obstacles(wanted: LabPlan, run: Path) -> list[str]:
    return list(data_path_obstacles(changed(wanted), run))


def test_what_fits_meets_no_obstacle(run: Path) -> None:
    assert obstacles(plan(), run) == obstacles(plan(3), run) == obstacles(plan(qos=ADAPTIVE), run) == []


def test_qos_comes_and_goes_without_an_obstacle(run: Path) -> None:
    """Its data path is loaded for the change, with room for all of it, or goes with it."""
    there, none = plan(30), plan(qos="")
    for changes in (kernel_changes(there, none), kernel_changes(none, there), kernel_changes(none, none)):
        assert list(data_path_obstacles(changes, run)) == []


def test_ports_without_room_are_told_with_the_room_there_is(run: Path) -> None:
    assert obstacles(plan(30), run) == ["its data path was loaded with room for 16 ports, and needs more now"]


def test_what_lacks_room_beside_ports_is_told_as_what_it_is(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is sent to remove ports where it is something else that is too much."""
    tables = plan().tables
    hold(monkeypatch, maps_in_memory(64, buffers=len(tables.buffers)))
    assert obstacles(plan(), run) == []
    said = f"its data path was loaded with room for {len(tables.buffers)} buffers, and needs more now"
    assert obstacles(plan(spines=3), run) == [said]


def test_a_data_path_of_an_older_version_cannot_adapt(run: Path) -> None:
    (pins.lab_directory(run) / PATHS_MAP).unlink()
    assert obstacles(plan(), run) == []
    (said,) = obstacles(plan(qos=ADAPTIVE), run)
    assert said == "its data path was loaded by an older version, and no switch of it can adapt or pin"


def test_maps_that_are_gone_are_an_obstacle_and_no_error_of_diff(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> LabMaps:
        raise DriverError("the data path of the lab is gone")

    monkeypatch.setattr(LabMaps, "open", gone)
    assert obstacles(plan(3), run) == ["its data path is gone"]
    pins.lab_directory(run).joinpath(PATHS_MAP).unlink()
    pins.lab_directory(run).rmdir()
    assert obstacles(plan(3), run) == [], "nor has the lab a run directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a while")
def test_whoever_may_not_look_there_has_the_rest_of_the_difference(tmp_path: Path) -> None:
    """`diff` is for everybody; the maps are for root alone."""
    directory = pins.lab_directory(tmp_path)
    directory.mkdir()
    for path in (tmp_path, *tmp_path.parents[:-2]):
        path.chmod(0o755)
    directory.chmod(0o700)
    changes = changed(plan(qos=ADAPTIVE))
    os.seteuid(65534)
    try:
        with pytest.raises(CapabilityError, match="not permitted") as caught:
            LabMaps.open(directory)
        assert caught.value.hint == "run as root"
        assert list(data_path_obstacles(changes, tmp_path)) == []
    finally:
        os.seteuid(0)
