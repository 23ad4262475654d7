"""What transports by fio refuse before anything runs: what a machine lacks, what does not fit, and a medium of NFS."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import CapabilityError, ScenarioError
from testbed.base.units import ByteCount, Duration
from testbed.endpoints.worker.fio.settings import JobSettings
from testbed.endpoints.worker.nvme.settings import NvmeTcpSettings
from testbed.endpoints.worker.transport_registry import decode_settings, encode_settings
from testbed.endpoints.worker.transports.nbd import NbdSettings
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.placed.placement import place_ranks
from testbed.run.schema.model import Ranks, Transport, TransportKind
from testbed.run.sweep.labs import LabOptions, ScenarioLabs
from testbed.run.sweeps import read_sweep
from testbed.run.transports.fio_transport import MOST_JOBS
from testbed.run.transports.registry import transport_on
from testbed.workload.steps import Workload
from testbed.workload.storage import Checkpoint, FioJobs, generate_checkpoint, generate_fio_jobs

TEXT = """name: store
scale: {time: 1000}
fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}
networks:
  storage:
    targets:
      flash: {protocol: [nbd, nfs], capacity: 1MB}
      disk: {protocol: nfs, medium: {latency: 5us}}
"""


SCENARIO = """name: blocks
topology:
  inline:
    name: blocks
    scale: {time: 1000}
    fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}
    networks: {storage: {targets: {flash: {protocol: nbd}}}}
transport: {kind: nbd}
workload: {kind: checkpoint, bytes: 1MB, storage: 1, ranks: {network: storage, targets: ["*"]}}
"""


@pytest.fixture(scope="module")
def lab() -> Any:
    model = load_topology_text(TEXT, file="store.yml")
    return SimpleNamespace(name="store", model=model, plan=plan_lab(model, k=1000.0))


def ranks_of(lab: Any, target: str) -> Any:
    return place_ranks(lab.model, lab.plan, Ranks(networks=("storage",), targets=(target,)), seed=1).nics


@pytest.mark.parametrize(("kind", "program"), [("nbd", "nbdkit"), ("nfs", "ganesha.nfsd")])
def test_a_missing_program_is_refused_with_what_installs_it(
    lab: Any, monkeypatch: pytest.MonkeyPatch, kind: str, program: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == program else f"/usr/bin/{name}")
    transport = transport_on(lab, Transport(kind=TransportKind(kind)))
    assert program in transport.warnings()[0]
    with pytest.raises(CapabilityError, match=f"{program} is not installed") as caught:
        transport.check_machine(transport.transport)
    assert (caught.value.hint or "").startswith("apt-get install nbdkit" if kind == "nbd" else "apt-get install nfs-")


def test_a_missing_program_is_refused_before_a_lab_comes_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "nbdkit" else f"/usr/bin/{name}")
    monkeypatch.setattr("testbed.run.sweep.labs.deploy_lab", lambda *_: pytest.fail("a lab was deployed"))
    sweep = read_sweep(SCENARIO)
    state = StateDirectory(state=tmp_path / "state", run=tmp_path / "run")
    with (
        ScenarioLabs(sweep, state, LabOptions()) as labs,
        pytest.raises(CapabilityError, match="nbdkit is not installed"),
    ):
        labs(sweep.points[0].topology)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Checkpoint(size_bytes=600_000), "holds 1 MB"),
        (Checkpoint(size_bytes=1000, stripes=MOST_JOBS + 1), f"{MOST_JOBS + 1} transfers"),
    ],
)
def test_what_does_not_fit_is_refused(lab: Any, choice: Checkpoint, words: str) -> None:
    transport = transport_on(lab, Transport(kind=TransportKind.NBD))
    with pytest.raises(ScenarioError, match=words):
        transport.plan_channels(generate_checkpoint(choice, ranks=3), ranks_of(lab, "flash"), seed=1)


def test_nfs_has_no_medium(lab: Any) -> None:
    transport = transport_on(lab, Transport(kind=TransportKind.NFS))
    transport.check_ranks(ranks_of(lab, "flash"))
    with pytest.raises(ScenarioError, match="disk has a medium"):
        transport.check_ranks(ranks_of(lab, "disk"))


def jobs(*entries: dict[str, Any]) -> Workload:
    return generate_fio_jobs(FioJobs(jobs=entries), ranks=3)


def test_workers_are_told_of_jobs_in_lab_time(lab: Any) -> None:
    """A job that reads and writes is one, of two steps, and its slot has room for what both may visit."""
    mixed = {"rw": "randrw", "size": ByteCount(64 << 10), "hosts": (0,), "runtime": Duration(2000)}
    workload = jobs(mixed, {"rw": "read", "bs": ByteCount(512), "size": ByteCount(1024), "hosts": (1,)})
    transport, ranks = transport_on(lab, Transport(kind=TransportKind.NBD)), ranks_of(lab, "flash")
    placement = PlacedWorkload(
        workload=workload, ranks=ranks, channels=transport.plan_channels(workload, ranks, seed=1), k=1000.0, seed=1
    )
    settings = transport.worker_settings(placement)(ranks[0].node)
    assert isinstance(settings, NbdSettings) and settings.slot_bytes == 64 << 10
    assert settings.jobs == (
        JobSettings(
            steps=(0, 1),
            block_bytes=4096,
            blocks=16,
            depth=1,
            at_random=True,
            read_percent=50,
            runtime_us=2000,
            repeats=False,
        ),
        JobSettings(
            steps=(2,), block_bytes=512, blocks=2, depth=1, at_random=False, read_percent=0, runtime_us=0, repeats=False
        ),
    )
    assert decode_settings(json.loads(json.dumps(encode_settings(settings)))) == settings


@pytest.mark.parametrize(
    "job", [{"rw": "randread"}, {"rw": "rw"}, {"iodepth": 2}, {"bs": ByteCount(2 << 20), "size": ByteCount(4 << 20)}]
)
def test_nfs_has_one_request_in_order(lab: Any, job: dict[str, Any]) -> None:
    transport = transport_on(lab, Transport(kind=TransportKind.NFS))
    ranks = ranks_of(lab, "flash")
    transport.plan_channels(jobs({"rw": "write", "size": ByteCount(4096), "numjobs": 4}), ranks, seed=1)
    with pytest.raises(ScenarioError, match="in order, with one request"):
        transport.plan_channels(jobs(job), ranks, seed=1)


def test_jobs_need_a_transport_that_goes_by_fio(lab: Any) -> None:
    with pytest.raises(ScenarioError, match="tcp does not go by fio"):
        transport_on(lab, Transport(kind=TransportKind.TCP)).plan_channels(jobs({}), ranks_of(lab, "flash"), seed=1)


def test_a_command_of_nvme_may_take_as_long_as_those_in_front_of_it(lab: Any) -> None:
    """1024 commands of 1 MiB of each of two hosts wait at a port of the lab; four times what they take there is
    allowed, and no less than 10 s."""
    workload = generate_checkpoint(Checkpoint(size_bytes=2 << 30), ranks=3)
    ranks = ranks_of(lab, "flash")
    found = []
    for options in ({"depth": 1}, {"depth": 1024}, {"depth": 1024, "io_timeout_ms": 700}):
        transport = transport_on(lab, Transport(kind=TransportKind.NVME_TCP, options=options))
        placement = PlacedWorkload(
            workload=workload, ranks=ranks, channels=transport.plan_channels(workload, ranks, seed=1), k=1000.0, seed=1
        )
        settings = transport.worker_settings(placement)(ranks[0].node)
        assert isinstance(settings, NvmeTcpSettings)
        found.append(settings.io_timeout_ms)
    assert found[0] == 10_000 and found[2] == 700
    assert found[1] == pytest.approx(4 * 1000 * 8 * 2 * (1 << 30) / ranks[2].nic_bps, rel=0.001)


def channels(design: str, *, multipath: bool, rails: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Who writes to whom where the first rank writes to the last one, by ranks."""
    text = f"name: x\nfabric: {{design: {design}, hosts: 2, gpus: 2, targets: {{flash: {{}}}}}}\n"
    model = load_topology_text(text, file="x.yml")
    where: Any = SimpleNamespace(name="x", model=model, plan=plan_lab(model, k=1000))
    nics = place_ranks(model, where.plan, Ranks(targets=("*",), rails=rails), seed=1).nics
    subject = transport_on(where, Transport(kind=TransportKind.NVME_TCP, options={"multipath": multipath}))
    workload = generate_checkpoint(Checkpoint(size_bytes=1000, storage=1, writers=(0,)), ranks=len(nics))
    planned = subject.plan_channels(workload, nics, seed=1)
    return [(channel.source, channel.destination) for channel in planned.channels]


def test_paths_to_other_nics_of_a_target_need_rails_that_reach_each_other() -> None:
    assert channels("rail-optimized", multipath=True) == channels("rail-only", multipath=False) == [(0, 5)]
    assert channels("rail-only", multipath=True, rails=(2,)) == [(0, 2)]
    with pytest.raises(ScenarioError, match="flash has NICs on several rails of x, which do not reach each other"):
        channels("rail-only", multipath=True)
