"""What transports by fio refuse before anything runs: what a machine lacks, what does not fit, and a medium of NFS."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import CapabilityError, ScenarioError
from testbed.model.scenario import Ranks, Transport, TransportKind
from testbed.plan import plan_lab
from testbed.scenario.run.placement import place_ranks
from testbed.scenario.transports.fio_transport import MOST_JOBS
from testbed.scenario.transports.registry import transport_on
from testbed.spec import load_topology_text
from testbed.workload.storage import Checkpoint, generate_checkpoint

TEXT = """name: store
scale: {time: 1000}
fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}
networks:
  storage:
    targets:
      flash: {protocol: [nbd, nfs], capacity: 1MB}
      disk: {protocol: nfs, medium: {latency: 5us}}
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
        transport.check_machine()
    assert (caught.value.hint or "").startswith("apt-get install nbdkit" if kind == "nbd" else "apt-get install nfs-")


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
