"""The verbs `deploy` and `destroy`."""

from __future__ import annotations

import sys
import time

from testbed.cli.labs import lab_name, read_topology
from testbed.cli.output import Format, console, emit_json
from testbed.cli.progress import StepDisplay
from testbed.cli.signals import stand_by_the_outcome
from testbed.deploy.lifecycle import DeployOptions, DeployOutcome, deploy_lab, destroy_lab, preview
from testbed.deploy.records.state import StateDirectory
from testbed.deploy.scale import resolve_scale
from testbed.deploy.steps import StepCallback
from testbed.drivers.nodes.mininet_package import load_mininet
from testbed.errors import LabNotFound, TestbedError
from testbed.model import Lab
from testbed.plan import describe_operation, summarize_plan
from testbed.plan.link_delays import mechanism_text

RUNTIMES = ("netns", "mininet")


def deploy(
    topology: str | None,
    name: str | None,
    settings: list[str],
    *,
    dry_run: bool,
    reconfigure: bool,
    keep_failed: bool,
    wait: bool,
    timeout_s: float,
    form: Format,
    quiet: bool,
    runtime: str = "netns",
) -> None:
    """Deploy, or with `dry_run` print what would be done."""
    started = time.monotonic()
    if runtime not in RUNTIMES:
        raise TestbedError(f"--runtime {runtime}: expected {' or '.join(RUNTIMES)}")
    lab = read_topology(topology, name, settings)
    state = StateDirectory()
    scale = resolve_scale(lab, state)
    if dry_run:
        plan = preview(lab, state, scale.k)
        if form is Format.JSON:
            emit_json([{"operation": describe_operation(operation)} for operation in plan.operations])
        else:
            sys.stdout.write("".join(describe_operation(operation) + "\n" for operation in plan.operations))
            print(summarize_plan(plan), file=sys.stderr)
        return
    if runtime == "mininet":
        load_mininet()
    if scale.warning:
        print(f"warning: {scale.warning}", file=sys.stderr)
    options = DeployOptions(k=scale.k, timeout_s=timeout_s, reconfigure=reconfigure, keep_failed=keep_failed, wait=wait)
    with StepDisplay(quiet=quiet) as display:
        outcome = _deploy(lab, state, options, display, runtime)
        stand_by_the_outcome()  # an interrupted deploy leaves nothing, so one that left a lab was not interrupted
    elapsed = time.monotonic() - started
    if form is Format.JSON:
        emit_json(
            {
                "lab": lab.name,
                "changed": outcome.changed,
                "seconds": round(elapsed, 3),
                "nodes": len(lab.nodes),
                "links": len(lab.links),
                "scale": {"time": scale.k, "reason": scale.reason},
                "directory": str(outcome.lab.directory),
            }
        )
        return
    if not outcome.changed:
        console().print(f"{lab.name}: already deployed, nothing changed ({elapsed:.1f} s)", highlight=False)
        return
    routers = len(lab.switches)
    console().print(
        f"{lab.name}: {len(lab.hosts)} hosts, {routers} switches, {len(lab.links)} links;"
        f" {'routing converged' if wait and routers else 'up'} in {elapsed:.1f} s",
        highlight=False,
    )
    console().print(f"time scale k = {scale.k:g} ({scale.reason})", highlight=False)
    bfd = lab.routing.bfd
    if lab.routing.bfd_auto and lab.switches:
        sessions = sum(link.kind == "fabric" for link in lab.links)
        choice = f"{bfd.interval} x {bfd.multiplier}" if bfd else "off"
        images = {switch.container.image if switch.container else "" for switch in lab.switches}
        why = ": its switches may run different releases of FRR" if len(images) > 1 else ""
        console().print(f"BFD auto: {choice} for {sessions} sessions{why}", highlight=False)
    if sentence := mechanism_text(outcome.lab.plan.ports):
        console().print(sentence, highlight=False)


def _deploy(
    lab: Lab, state: StateDirectory, options: DeployOptions, notify: StepCallback, runtime: str
) -> DeployOutcome:
    if runtime == "netns":
        return deploy_lab(lab, state, options, notify)
    from testbed.mininet import LabNet, deploy

    return deploy(LabNet(lab, state, outlive=True), lab, state, options, notify)


def destroy(name: str | None, topology: str | None, *, every: bool, yes: bool, quiet: bool) -> None:
    """Destroy one lab, or all."""
    state = StateDirectory()
    names = state.names() if every else [lab_name(name, topology)]
    if every and not names:
        print("no lab is deployed")
        return
    if every and not yes:
        if not sys.stdin.isatty():
            raise TestbedError("destroy --all wants a confirmation", hint="add --yes")
        answer = input(f"destroy {', '.join(names)}? [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            return
    for lab in names:
        started = time.monotonic()
        with StepDisplay(quiet=True):
            try:
                outcome = destroy_lab(lab, state)
            except LabNotFound:
                if every:
                    continue  # somebody else destroyed it meanwhile
                raise
        if outcome.unknown:
            kinds = ", ".join(outcome.unknown)
            print(f"warning: another version of testbed also made for {lab}, and it stays: {kinds}", file=sys.stderr)
        if not quiet:
            print(f"{outcome.lab}: {outcome.nodes} nodes removed in {time.monotonic() - started:.1f} s")
