"""The verb `pool`: the machines that `run --pool` runs on."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.base.errors import ExitCode
from testbed.base.rows import column
from testbed.cli import options
from testbed.cli.command import Group, argument

if TYPE_CHECKING:
    from testbed.api.pool.pool import MachineFound

pool = Group("pool", help="Look at the machines of a pool, on which `run --pool` runs points side by side.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """A machine of a pool, and what keeps it from taking part."""

    machine: str
    reached: bool
    testbed: str = ""
    build: str = column(default="", text=lambda row: row.build[:8])
    python: str = ""
    cores: int | None = None
    memory_gb: float | None = None
    cpu: str = column(in_table=False, default="")
    kernel: str = ""
    root: bool | None = None
    labs: str = ""
    packet_us: str = column(sparse=True, default="")
    remark: str = ""


@pool.command("check", codes={0: "all machines can take part", 1: "one of them cannot, or differs from this machine"})
@argument("text", metavar="POOL", help="A file, pool.yml, or targets: ssh://user@a,ssh://user@b.")
@options.format_option
def check(text: str, format: options.Format) -> None:
    """Reach each machine, and compare it with this one: versions, builds, cores, what labs lack, a packet's cost."""
    from testbed.api.pool.reached import ReachedMachines
    from testbed.cli.output import emit

    with ReachedMachines(text, "") as reached:
        from testbed.api.pool.about import about_this_machine
        from testbed.api.pool.pool import look_at  # what machines are compared by takes longer than to refuse a file

        found = look_at(reached.machines, about_this_machine(probed=False))
    emit([_row(one) for one in found], PoolRow, format)
    odd = any(one.about is None or one.different or one.needs for one in found)
    sys.exit(ExitCode.FAIL if odd else ExitCode.PASS)


def _row(found: "MachineFound") -> PoolRow:
    about = found.about
    if about is None:
        return PoolRow(machine=found.machine.name, reached=False, remark=found.problem)
    lacking = ", ".join(about.lacks)
    return PoolRow(
        machine=found.machine.name,
        reached=True,
        testbed=about.environment.testbed,
        build=about.build,
        python=about.environment.python,
        cores=about.cores,
        memory_gb=None if about.environment.memory_bytes is None else round(about.environment.memory_bytes / 1e9, 1),
        cpu=about.environment.cpu_model or "",
        kernel=about.environment.kernel,
        root=about.root,
        labs="can be deployed" if about.can_deploy else f"lacks {lacking}" if lacking else "need root",
        packet_us=", ".join(f"{name} {us:g}" for name, us in about.packet_us.items()),
        remark="; ".join([*found.different, *found.needs]),
    )
