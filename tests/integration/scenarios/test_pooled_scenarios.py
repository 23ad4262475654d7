"""Every shipped scenario that can be simulated, over two machines and here: the same record to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from namespace_machine import MachineRoom, machines_lack
from scenario_runs import SCENARIOS

from testbed.base.errors import ScenarioError
from testbed.record.store import RECORD_FILE
from testbed.run.simulated.support import check_supported
from testbed.run.sweeps import read_sweep

pytestmark = [
    pytest.mark.scenarios,
    pytest.mark.thorough,
    pytest.mark.netns,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(machines_lack()), reason=f"machines of namespaces: {machines_lack()}"),
    pytest.mark.skipif(find_spec("distributed") is None, reason="Dask distributed: pip install 'testbed[pool]'"),
]
RUN = ("run", "--backend", "simulation", "--no-report", "-q", "-o")


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    with MachineRoom(tmp_path_factory.mktemp("room")) as found:
        yield found


@pytest.fixture(scope="module")
def pool(room: MachineRoom) -> str:
    return ",".join(room.start(name).target for name in ("m1", "m2"))


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yml")), ids=lambda path: path.stem)
def test_two_machines_make_the_record_of_one(path: Path, room: MachineRoom, pool: str, tmp_path: Path) -> None:
    try:
        check_supported(read_sweep(path))
    except ScenarioError:
        return  # it says why, and docs/reference has the list
    codes = []
    for where, words in {"here": (), "pooled": ("--pool", pool)}.items():
        done = room.run(*RUN, str(tmp_path / where), str(path), *words, directory=tmp_path, timeout_s=900)
        assert done.returncode in (0, 1, 2), done.stderr
        codes.append(done.returncode)
    here, pooled = (next((tmp_path / where).glob(f"*/{RECORD_FILE}")) for where in ("here", "pooled"))
    assert pooled.read_bytes() == here.read_bytes()
    assert codes[0] == codes[1]
