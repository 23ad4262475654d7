"""The verb `deploy`."""

import sys
import time
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import command, option
from testbed.cli.signals import stand_by_the_outcome

if TYPE_CHECKING:
    from testbed.lab.core.deploy.lifecycle import DeployOptions, DeployOutcome
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.deploy.scale import ScaleResolution
    from testbed.lab.core.deploy.steps import StepCallback
    from testbed.lab.core.model import Lab

RUNTIMES = ("netns", "mininet")


@command(
    "deploy",
    codes={
        0: "the lab is up, and its routing has converged where that was waited for",
        1: "the lab is up, and its routing has not converged in time",
        2: "it broke off, and nothing of the lab is left",
    },
)
@options.topology
@options.lab_name
@options.settings
@option("--dry-run", is_flag=True, help="Print the operations and touch nothing.")
@option("--reconfigure", is_flag=True, help="Replace a lab of that name.")
@option("--keep-failed", is_flag=True, help="Do not undo a deploy that failed.")
@option("--wait/--no-wait", default=True, help="Wait until routing has converged.")
@options.timeout
@option("--runtime", default="netns", help="netns, or mininet: Mininet's objects, too.")
@option("--over", help="Spread it over machines: ssh://user@a,ssh://user@b (experimental).")
@options.format_option
@options.quiet
def deploy(
    topology: str | None,
    name: str | None,
    set: tuple[str, ...],
    dry_run: bool,
    reconfigure: bool,
    keep_failed: bool,
    wait: bool,
    timeout: float,
    runtime: str,
    over: str | None,
    format: options.Format,
    quiet: bool,
) -> None:
    """Bring a lab up and wait until its routing has converged. Deploying it twice changes nothing."""
    from testbed.cli.lab_choice import placed_plan_errors, read_topology
    from testbed.cli.output import warn
    from testbed.cli.progress import StepDisplay
    from testbed.lab.core.deploy.lifecycle import DeployOptions
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.deploy.scale import resolve_scale
    from testbed.lab.core.drivers.probing.mininet import load_mininet

    started = time.monotonic()
    if runtime not in RUNTIMES:
        raise TestbedError(f"--runtime {runtime}: expected {' or '.join(RUNTIMES)}")
    lab = read_topology(topology, name, set, warn=not dry_run)
    if over is not None or lab.machines:
        from testbed.cli.machine.spread_deploy import SpreadDeploy

        if runtime != "netns" or keep_failed:
            raise TestbedError("a lab over several machines has neither --runtime nor --keep-failed")
        spread = SpreadDeploy.of(lab, over, timeout_s=timeout, wait=wait, reconfigure=reconfigure)
        with placed_plan_errors(topology, name, set):
            spread.show(format) if dry_run else spread.deploy(format, quiet=quiet)
        return
    state = StateDirectory()
    scale = resolve_scale(lab, state, replaces=reconfigure)
    if dry_run:
        with placed_plan_errors(topology, name, set):
            _print_operations(lab, state, scale.k, format)
        return
    if runtime == "mininet":
        load_mininet()
    if scale.warning:
        warn(scale.warning)
    options = DeployOptions(k=scale.k, timeout_s=timeout, reconfigure=reconfigure, keep_failed=keep_failed, wait=wait)
    with placed_plan_errors(topology, name, set), StepDisplay(quiet=quiet) as display:
        outcome = _deploy(lab, state, options, display, runtime)
        stand_by_the_outcome()  # an interrupted deploy leaves nothing, so one that left a lab was not interrupted
    _print_outcome(outcome, scale, time.monotonic() - started, format, waited=wait)


def _print_operations(lab: "Lab", state: "StateDirectory", k: float, form: options.Format) -> None:
    """Print what a deploy would do, one operation a line."""
    from testbed.cli.output import emit_json
    from testbed.lab.core.deploy.lifecycle import preview
    from testbed.lab.core.plan.describe import summarize_plan

    plan = preview(lab, state, k)
    if form is options.Format.JSON:
        emit_json([{"operation": str(operation)} for operation in plan.operations])
        return
    sys.stdout.write("".join(str(operation) + "\n" for operation in plan.operations))
    print(summarize_plan(plan), file=sys.stderr)


def _deploy(
    lab: "Lab", state: "StateDirectory", options: "DeployOptions", notify: "StepCallback", runtime: str
) -> "DeployOutcome":
    from testbed.lab.core.deploy.lifecycle import deploy_lab

    if runtime == "netns":
        return deploy_lab(lab, state, options, notify)
    from testbed.mininet import LabNet, deploy

    return deploy(LabNet(lab, state, outlive=True), lab, state, options, notify)


def _print_outcome(
    outcome: "DeployOutcome", scale: "ScaleResolution", elapsed_s: float, form: options.Format, *, waited: bool
) -> None:
    """Say what is deployed now, at which time scale, and by which mechanisms."""
    from testbed.cli.output import console, emit_json
    from testbed.lab.core.plan.link_delays import mechanism_text
    from testbed.lab.features.mlag.plan.planner import lag_text
    from testbed.lab.features.overlay.plan.devices import vrf_text

    lab, plan = outcome.lab.model, outcome.lab.plan
    if form is options.Format.JSON:
        emit_json(
            {
                "lab": lab.name,
                "changed": outcome.changed,
                "seconds": round(elapsed_s, 3),
                "nodes": len(lab.nodes),
                "links": len(lab.links),
                "scale": {"time": scale.k, "reason": scale.reason},
                "directory": str(outcome.lab.directory),
            }
        )
        return
    if not outcome.changed:
        console().print(f"{lab.name}: already deployed, nothing changed ({elapsed_s:.1f} s)", highlight=False)
        return
    routers = len(lab.switches)
    ready = "routing converged" if waited and routers else "up"
    if waited and lab.infiniband is not None:
        ready += f", the subnet of {len(lab.infiniband.switches)} InfiniBand switches too"
    if waited and plan.services:
        ready += f" and {len(plan.services)} services on nodes answer"
    console().print(
        f"{lab.name}: {len(lab.hosts)} hosts, {routers} switches, {len(lab.links)} links; {ready} in {elapsed_s:.1f} s",
        highlight=False,
    )
    console().print(f"time scale k = {scale.k:g} ({scale.reason})", highlight=False)
    for network in lab.data_networks:
        if lab.carrier_of(network) != network:
            continue  # its switches are another one's
        of = "" if network == lab.data_networks[0] else f" of {network}"
        if text := _bfd_text(lab.of_network(network), of):
            console().print(text, highlight=False)
    vrfs = plan.overlay.vrfs if plan.overlay else ()
    for sentence in (mechanism_text(plan.ports), vrf_text(vrfs), lag_text(plan.link_groups)):
        if sentence:
            console().print(sentence, highlight=False)


def _bfd_text(lab: "Lab", of: str) -> str:
    """Say what "auto" means for a network; "" where it does not stand there."""
    bfd = lab.routing.bfd
    if not lab.routing.bfd_auto or not lab.switches:
        return ""
    sessions = sum(link.kind == "fabric" for link in lab.links)
    if not sessions:
        return ""
    choice = f"{bfd.interval} x {bfd.multiplier}" if bfd else "off"
    images = {switch.container.image if switch.container else "" for switch in lab.switches}
    why = ": its switches may run different releases of FRR" if len(images) > 1 else ""
    return f"BFD auto: {choice} for {sessions} session{'' if sessions == 1 else 's'}{of}{why}"
