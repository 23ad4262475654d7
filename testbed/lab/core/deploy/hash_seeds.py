"""Gives switches, and hosts with link groups, the hash seeds of a run, without another deploy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.netns import write_sysctl
from testbed.lab.core.feature import features
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import SetSysctl
from testbed.lab.core.plan.stable import seed_of_run
from testbed.lab.core.plan.sysctls import HASH_SEED

DEPLOYED = 1
"""The run whose seeds a deploy gives switches."""


def set_hash_seeds(lab: RunningLab, run: int) -> None:
    """Have all switches of a lab, and what of its features does, hash as in the run of this seed; those whose seed the
    topology fixes keep it.

    Where the kernel hashes, and has no seed for a namespace (before Linux 6.11), its hash stays as it is. Raises
    `DriverError`, `ConvergenceError`.
    """
    plan = lab.whole.plan
    if plan.tables is not None:
        with closing(lab.whole.maps(writable=True)) as maps:
            for port in plan.installs:
                if port.switch:
                    maps.ports["seed"][port.port] = plan.tables.buffers[port.buffer].seed_in(run)
    of_kernel = kernel_seeds(plan, run)

    def write() -> None:
        for place, seed in of_kernel.items():
            enter_namespace(namespace_name(lab.name, place))
            if (Path("/proc/sys") / HASH_SEED).exists():
                write_sysctl(SetSysctl(node=place, key=HASH_SEED, value=str(seed)))

    if of_kernel:
        syscalls.in_thread(write)
    for feature in features():
        feature.set_hash_seeds(lab.whole, run)


def kernel_seeds(plan: LabPlan, run: int) -> dict[str, int]:
    """Return what the kernel's own hash begins with in the run of this seed, by the node of a namespace."""
    fixed = {buffer.node for buffer in (() if plan.tables is None else plan.tables.buffers) if buffer.fixed_seed}
    switch_of = {vrf.place: vrf.switch for vrf in (() if plan.overlay is None else plan.overlay.vrfs)}
    return {
        item.node: seed_of_run(int(item.value), run)
        for item in plan.operations
        if isinstance(item, SetSysctl) and item.key == HASH_SEED and switch_of.get(item.node, item.node) not in fixed
    }
