"""What programs in a host of a lab with packets in its scale-up domains are told of the host's GPUs.

It is a file for each host, written when the domains' switches start, and gone with the lab's run directory. Commands
that are run in a host find it by an environment variable. A host that is a container sees its file, and the library of
endpoints, where they are on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.base.files import write_atomically
from testbed.lab.core.plan.operations import LabPlan
from testbed.lab.features.scale_up.apply import gpu_settings
from testbed.lab.features.scale_up.watch_switches import DIRECTORY_NAME
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.host_gpus import GPUS_VARIABLE, HostGpus


def host_gpus(plan: LabPlan, library: Path, run: Path) -> Iterator[tuple[str, HostGpus]]:
    """The hosts that have GPUs in domains with packets, and what programs in them are told.

    `library` is the compiled library of endpoints, `run` the lab's run directory.
    """
    for domain in plan.scale_up_domains:
        numbers: dict[str, int] = {}
        for wire in domain.wires:
            numbers[wire.host] = max(wire.local_gpu, numbers.get(wire.host, 0))
        link = domain.links[0]
        for host, count in numbers.items():
            yield (
                host,
                HostGpus(
                    host=host,
                    domain=domain.name,
                    library=library,
                    time_scale=link.k,
                    rtt_ns=link.real.rtt.ns,
                    rate_bps=sum(plane.real.rate.bps for plane in domain.links),
                    gpus=[gpu_settings(plan, host, number, run) for number in range(1, count + 1)],
                ),
            )


def write_host_gpus(plan: LabPlan, run: Path) -> None:
    """Write the files of all hosts into the lab's run directory. Raises `CapabilityError` without a compiler."""
    if not plan.scale_up_domains:
        return
    for host, found in host_gpus(plan, scale_up_domain.build(), run):
        path = _path(run, host)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, found.to_json(), durable=False)


def gpu_environment(plan: LabPlan, run: Path, node: str) -> dict[str, str]:
    """What a command in a node finds its GPUs by; nothing where the node has none in a domain with packets."""
    return {GPUS_VARIABLE: str(_path(run, node))} if _has_gpus(plan, node) else {}


def gpu_paths(plan: LabPlan, run: Path, node: str) -> tuple[Path, ...]:
    """What a node that is a container must see of this machine to open its GPUs: the directory of its file, which is
    made here, and the library. Nothing where it has none in a domain with packets. Raises `CapabilityError` without a
    compiler.
    """
    if not _has_gpus(plan, node):
        return ()
    directory = _path(run, node).parent
    directory.mkdir(parents=True, exist_ok=True)
    return directory, scale_up_domain.build()


def _has_gpus(plan: LabPlan, node: str) -> bool:
    return any(wire.host == node for domain in plan.scale_up_domains for wire in domain.wires)


def _path(run: Path, host: str) -> Path:
    """In a directory that no switch of a domain uses: a container sees all of it."""
    return run / DIRECTORY_NAME / ".gpus" / host / "gpus.json"
