"""Tells programs in a host of a lab with packets in its scale-up domains of the host's GPUs.

It is a file for each host, written when the domains' switches start, and gone with the lab's run directory. Commands
that are run in a host find it by an environment variable. A host that is a container sees its file, and the library of
endpoints, where they are on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.base.files import write_atomically
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.scale_up.apply import gpu_settings
from testbed.lab.features.scale_up.gpu_files import gpu_file
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.host_gpus import HostGpus


def host_gpus(plan: LabPlan, library: Path, run: Path) -> Iterator[tuple[str, HostGpus]]:
    """The hosts that have GPUs in domains with packets, and what programs in them are told.

    `library` is the compiled library of endpoints, `run` the lab's run directory.
    """
    for domain in plan.scale_up_domains:
        numbers: dict[str, int] = {}
        for wire in domain.wires:
            if not wire.memory:
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
    for host, found in host_gpus(plan, scale_up_domain.build(), run):
        path = gpu_file(run, host)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, found.to_json(), durable=False)
