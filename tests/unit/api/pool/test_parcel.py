"""The files of a sweep go to another machine, where the same points are read from them."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.api.pool.parcel import SweepOrder, pack_sweep, read_order, unpack_parcel
from testbed.base.errors import ScenarioError
from testbed.lab.core.deploy.records.lab_record import encode_lab, state_of
from testbed.run.sweeps import read_sweep

TOPOLOGY = "name: sent\nfabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}\n"
SCENARIO = """name: sent
topology: {file: ../topologies/sent.yml}
transport: {kind: uet}
workload: {kind: permutation, bytes: 100kB}
matrix: {transport.paths: [oblivious, reps]}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    for name, text in (("topologies/sent.yml", TOPOLOGY), ("scenarios/sent.yml", SCENARIO)):
        path = tmp_path / "here" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "here/scenarios/secret.yml").write_text("password: not for others\n")
    return tmp_path / "here/scenarios/sent.yml"


def there(archive: bytes, order: SweepOrder, tmp_path: Path) -> Path:
    """The directory of another machine's parcels, with this one unpacked."""
    parcels = tmp_path / "there"
    unpack_parcel(archive, parcels / order.parcel)
    return parcels


def test_another_machine_reads_the_same_points(scenario: Path, tmp_path: Path) -> None:
    sweep = read_sweep(scenario, {"workload.bytes": "200kB", "fabric.hosts": 4})
    archive, order = pack_sweep(sweep)
    found = read_order(order, there(archive, order, tmp_path))
    assert [point.name for point in found.points] == [point.name for point in sweep.points]
    states = [[state_of(encode_lab(lab)) for lab in one.labs.values()] for one in (found, sweep)]
    assert states[0] == states[1] and len(states[0]) == 1
    assert found.scenario.workload == sweep.scenario.workload


def test_what_the_scenario_does_not_name_stays_here(scenario: Path) -> None:
    archive, _ = pack_sweep(read_sweep(scenario))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        names = {Path(member.name).name for member in tar if member.isfile()}
    assert names == {"sent.yml"}


def test_a_file_that_an_override_names_goes_along(scenario: Path, tmp_path: Path) -> None:
    other = tmp_path / "here/other.yml"
    other.write_text(TOPOLOGY.replace("name: sent", "name: other"))
    sweep = read_sweep(scenario, {"topology.file": str(other)})
    archive, order = pack_sweep(sweep)
    assert order.moved == ["topology.file"]
    parcels = there(archive, order, tmp_path)
    other.unlink()
    assert [lab.name for lab in read_order(order, parcels).labs.values()] == ["other"]


def test_a_machine_that_reads_other_points_says_so(scenario: Path, tmp_path: Path) -> None:
    archive, order = pack_sweep(read_sweep(scenario))
    with pytest.raises(ScenarioError, match="and not the same 3"):
        read_order(replace(order, points=3), there(archive, order, tmp_path))


def test_a_scenario_of_no_file_is_refused() -> None:
    text = SCENARIO.replace("{file: ../topologies/sent.yml}", f"{{inline: {{name: sent, {TOPOLOGY.splitlines()[1]}}}}}")
    with pytest.raises(ScenarioError, match="from their files"):
        pack_sweep(read_sweep(text))
