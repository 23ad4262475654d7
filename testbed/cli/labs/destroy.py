"""The verb `destroy`."""

import sys
import time

from testbed.base.errors import LabNotFound, TestbedError
from testbed.cli import options
from testbed.cli.command import command, option


@command("destroy", codes={2: "a machine of a lab over several does not answer, and still has its part"})
@options.lab_name
@options.topology
@option("--all", "-a", is_flag=True, help="All labs of this machine.")
@option("--yes", "-y", is_flag=True, help="Do not ask (with --all).")
@options.quiet
def destroy(name: str | None, topology: str | None, all: bool, yes: bool, quiet: bool) -> None:
    """Remove exactly what a lab created; needs its name alone, and works after a crash."""
    from testbed.cli.lab_choice import lab_name
    from testbed.cli.output import warn
    from testbed.lab.core.deploy.lifecycle import destroy_lab
    from testbed.lab.core.deploy.records.state import StateDirectory

    state = StateDirectory()
    if not all and _destroyed_over_machines(name, topology, quiet=quiet):
        return
    names = state.names() if all else [lab_name(name, topology)]
    if all and not names:
        print("no lab is deployed")
        return
    if all and not yes:
        if not sys.stdin.isatty():
            raise TestbedError("destroy --all wants a confirmation", hint="add --yes")
        answer = input(f"destroy {', '.join(names)}? [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            return
    for lab in names:
        started = time.monotonic()
        try:
            outcome = destroy_lab(lab, state)
        except LabNotFound:
            if all:
                continue  # somebody else destroyed it meanwhile
            raise
        if outcome.unknown:
            kinds = ", ".join(outcome.unknown)
            warn(f"another version of testbed also made for {lab}, and it stays: {kinds}")
        for said in outcome.remaining:
            warn(f"{lab}: {said}")
        if not quiet:
            print(f"{outcome.lab}: {outcome.nodes} nodes removed in {time.monotonic() - started:.1f} s")


def _destroyed_over_machines(name: str | None, topology: str | None, *, quiet: bool) -> bool:
    """Destroy the lab over several machines that is meant, if one is; tells whether one was.

    Raises `PartLost` where a machine does not answer, which still has its part of the lab.
    """
    from testbed.cli.lab_choice import lab_name
    from testbed.cli.machine.over import spread_named

    words = ["destroy", *(["-n", name] if name is not None else ["-n", lab_name(None, topology)] if topology else [])]
    if (record := spread_named(words)) is None:
        return False
    from testbed.api.pool.over.live import destroy_spread
    from testbed.api.pool.over.messages import PartLost
    from testbed.api.pool.over.records import SpreadRecords
    from testbed.cli.output import warn
    from testbed.cli.progress import StepDisplay

    started = time.monotonic()
    with StepDisplay(quiet=True) as display:
        outcome = destroy_spread(record.name, SpreadRecords(), display)
    for said in outcome.remaining:
        warn(said)
    if outcome.unreached:
        why = "; ".join(outcome.unreached.values())
        raise PartLost(f"{record.name} is still on {', '.join(outcome.unreached)}: {why}", hint=outcome.hint)
    if not quiet:
        took_s = time.monotonic() - started
        print(f"{outcome.lab}: {outcome.nodes} nodes removed from {len(record.machines)} machines in {took_s:.1f} s")
    return True
