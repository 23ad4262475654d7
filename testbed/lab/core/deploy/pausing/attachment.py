"""A lab's ports given to the pause agent, and taken back."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from testbed.base.datapath import pins
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.linux.processes import Process
from testbed.base.names import namespace_name
from testbed.daemons.portd.attachment import LabAttachment, PortAttachment
from testbed.daemons.portd.client import AGENT_MODULE, PauseAgent
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort, place_of

EVENTS_FILE = "pause-events.jsonl"


def needs_pause_agent(plan: LabPlan) -> bool:
    """Tell whether any class of any port is lossless."""
    return plan.tables is not None and any(
        item.lossless for profile in plan.tables.profiles for item in profile.classes
    )


def attachment_of(
    plan: LabPlan, run_directory: Path, state_directory: Path, *, but: Container[int] = ()
) -> LabAttachment:
    """Return what the agent must know of a planned lab with `qos:`, of ports but those of these numbers."""
    if plan.tables is None:
        raise ValueError(f"{plan.lab} has no qos")
    macs = {(port.node, port.name): port.mac for port in plan.ports}
    lossless = [tuple(item.priority for item in profile.classes if item.lossless) for profile in plan.tables.profiles]
    ports = []
    for item in plan.operations:
        if isinstance(item, InstallPort) and item.port not in but:
            buffer = plan.tables.buffers[item.buffer]
            ports.append(
                PortAttachment(
                    number=item.port,
                    peer=item.peer,
                    node=item.node,
                    interface=item.name,
                    namespace=str(NETNS_DIRECTORY / namespace_name(plan.lab, place_of(item))),
                    ifindex=item.ifindex,
                    mac=macs[item.node, item.name],
                    rate_bps=item.rate_bps,
                    mtu_bytes=item.mtu_bytes,
                    lossless=lossless[item.profile],
                    watchdog_detect_ns=buffer.watchdog_detect_ns,
                    watchdog_restore_ns=buffer.watchdog_restore_ns,
                )
            )
    return LabAttachment(
        lab=plan.lab,
        pin_directory=pins.lab_directory(run_directory),
        events_file=state_directory / EVENTS_FILE,
        ports=tuple(ports),
    )


def attach(plan: LabPlan, run: Path, run_directory: Path, state_directory: Path) -> None:
    """Have the agent of `run` serve the lab, if it has lossless classes. Raises `PauseAgentError`.

    The agent needs the namespaces and the maps, and opens a port's sockets when it first pauses: links may follow.
    """
    if needs_pause_agent(plan):
        PauseAgent(run).attach(attachment_of(plan, run_directory, state_directory))


def change_attachment(old: LabPlan, new: LabPlan, run: Path, run_directory: Path, state_directory: Path) -> None:
    """Have the agent serve a lab that is up by its new plan, and the ports that are still there of the old one.

    Raises `PauseAgentError`.
    """
    if not needs_pause_agent(new):
        return
    had_agent = needs_pause_agent(old)
    if had_agent and old.tables == new.tables and _ports_of(old) == _ports_of(new):
        return
    after = attachment_of(new, run_directory, state_directory)
    known = {port.number for port in after.ports}
    leaving = attachment_of(old, run_directory, state_directory, but=known).ports if had_agent else ()
    PauseAgent(run).attach(replace(after, ports=(*after.ports, *leaving)))


def _ports_of(plan: LabPlan) -> list[InstallPort]:
    """The ports that the agent knows of, in its order. MACs follow from their names."""
    return [item for item in plan.operations if isinstance(item, InstallPort)]


def leave_attachment(old: LabPlan, new: LabPlan, run: Path, run_directory: Path, state_directory: Path) -> None:
    """Have the agent forget the ports that are gone, or the lab where nothing of it is lossless any more.

    Raises `PauseAgentError`.
    """
    if not needs_pause_agent(new):
        if needs_pause_agent(old):
            detach(new.lab, run)
    elif not {number for _, number in old.installed} <= {number for _, number in new.installed}:
        attach(new, run, run_directory, state_directory)


def detach(lab: str, run: Path) -> list[Process]:
    """Take a lab from the agent, whose processes come back where they ended with it.

    Fine for a lab that is not attached.
    """
    return [Process(pid=pid, identity=0, command=AGENT_MODULE) for pid in PauseAgent(run).detach(lab)]
