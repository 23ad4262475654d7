"""The files in which a host's programs find what they are told of its GPUs (`host_gpus` writes it)."""

from __future__ import annotations

from pathlib import Path

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.scale_up.watch_switches import DIRECTORY_NAME
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.host_gpus import GPUS_VARIABLE


def gpu_environment(plan: LabPlan, run: Path, node: str) -> dict[str, str]:
    """Return the variable by which a command in a node finds its GPUs; none where the node has none in a domain with
    packets."""
    return {GPUS_VARIABLE: str(gpu_file(run, node))} if _has_gpus(plan, node) else {}


def gpu_paths(plan: LabPlan, run: Path, node: str) -> tuple[Path, ...]:
    """Return the paths of this machine that a node that is a container must see to open its GPUs: the directory of its
    file, which is made here, and the library. Nothing where it has none in a domain with packets. Raises
    `CapabilityError` without a
    compiler.
    """
    if not _has_gpus(plan, node):
        return ()
    directory = gpu_file(run, node).parent
    directory.mkdir(parents=True, exist_ok=True)
    return directory, scale_up_domain.build()


def _has_gpus(plan: LabPlan, node: str) -> bool:
    return any(wire.host == node for domain in plan.scale_up_domains for wire in domain.wires)


def gpu_file(run: Path, host: str) -> Path:
    """In a directory that no switch of a domain uses: a container sees all of it."""
    return run / DIRECTORY_NAME / ".gpus" / host / "gpus.json"
