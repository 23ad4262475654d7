"""Scale-up domains in a change of a lab that is up: their switches are started, started anew and ended.

A switch has its ports, buffers, credits and rates from its start on, and so have the ends of GPUs that programs open. A
domain of which any of these is another gets a new switch in the place of the old one. GPUs of it that are in use lose
their links meanwhile, and their ends would go on with credits and windows that the switch does not have: then it is
done only where a restart is allowed. Where no program has a GPU of the domain open, nothing is lost.

Errors that were set on links (`testbed link set`) are set on the new switch, too, as far as it has these links.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.base.names import namespace_name
from testbed.daemons.switchd.description import SwitchDescription
from testbed.daemons.switchd.errors import SwitchMissing
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.steps import step
from testbed.lab.core.feature import Changing, FeatureChange
from testbed.lab.core.model import NETNS, Lab
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.domain_plan import DomainPlan, DomainWire
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.scale_up.apply import start_domain_switches, switch_description
from testbed.lab.features.scale_up.gpu_files import gpu_file
from testbed.lab.features.scale_up.host_gpus import write_host_gpus
from testbed.lab.features.scale_up.watch_switches import domain_switch
from testbed.protocols.scale_up.domain.link import LinkErrors

_Link = tuple[str, int, int]
"""A host, the number of a GPU in it, and a plane, both from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainChanges:
    """All that makes the domains of one plan those of another. `open_gpus` are the GPUs that programs have open, by
    domain."""

    old: LabPlan
    new: LabPlan
    started: tuple[DomainPlan, ...] = ()
    restarted: tuple[DomainPlan, ...] = ()
    ended: tuple[DomainPlan, ...] = ()
    differences: Mapping[str, str] = field(default_factory=dict)
    open_gpus: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> Iterator[ChangeRow]:
        """Yield a row for each switch that something is done to."""
        for domain in self.started:
            yield _row(Effect.MADE, domain, detail=_size(domain))
        for domain in self.restarted:
            in_use = self.open_gpus.get(domain.name, 0)
            yield _row(
                Effect.RESTARTED,
                domain,
                detail=self.differences.get(domain.name, ""),
                at_stake=f"what {in_use} GPUs in use have under way" if in_use else "",
                allow=Allow.RESTART if in_use else "",
            )
        for domain in self.ended:
            yield _row(Effect.REMOVED, domain, detail=_size(domain))


def _row(effect: Effect, domain: DomainPlan, **more: Any) -> ChangeRow:
    what = f"switch of {domain.name}"
    return ChangeRow(effect=effect, node=domain.node, what=what, kind="switch of a scale-up domain", **more)


def _size(domain: DomainPlan) -> str:
    pool = f", {domain.devices} memory devices" if domain.devices else ""
    return f"{domain.gpus} GPUs, {domain.planes} planes{pool}"


def compare_domains(old: LabPlan, new: LabPlan, open_gpus: Mapping[str, int]) -> DomainChanges:
    """Return what makes the domains of one plan those of another; nothing is touched."""
    before = {domain.name: domain for domain in old.scale_up_domains}
    after = {domain.name: domain for domain in new.scale_up_domains}
    differences = {
        name: why
        for name, domain in after.items()
        if name in before
        and (
            why := _difference(
                switch_description(old, before[name]),
                switch_description(new, domain),
                (before[name].devices, domain.devices),
            )
        )
    }
    return DomainChanges(
        old=old,
        new=new,
        started=tuple(domain for name, domain in after.items() if name not in before),
        restarted=tuple(after[name] for name in differences),
        ended=tuple(domain for name, domain in before.items() if name not in after),
        differences=differences,
        open_gpus=open_gpus,
    )


def _difference(old: SwitchDescription, new: SwitchDescription, devices: tuple[int, int]) -> str:
    """Say how the description of a switch differs from an older one; "" where it does not. Of the ends of each, so many
    are `devices` of memory."""
    if old == new:
        return ""
    found = [
        f"{name} {before} -> {after}"
        for name, before, after in (
            ("gpus", old.gpus - devices[0], new.gpus - devices[1]),
            ("memory devices", *devices),
            ("planes", old.planes, new.planes),
            ("voq", old.voq, new.voq),
        )
        if before != after
    ]
    if tuple(old.plane_rates_bps) != tuple(new.plane_rates_bps):
        found.append("rates of its links")
    found += [
        f"{name} of its links {before} -> {after}"
        for name in ("flow_control", "coarse", "unit_bytes", "capacity", "delay_ns", "headers")
        if (before := _shown(getattr(old.link, name))) != (after := _shown(getattr(new.link, name)))
    ]
    if old.link.retry != new.link.retry:
        found.append("link-level retry")
    return ", ".join(found) or "other ports or settings of its links"


def _shown(value: object) -> str:
    return str(getattr(value, "name", value)).lower()


class DomainsChange(FeatureChange):
    """Has the switches of domains be those of the new plan, and hosts told of their GPUs."""

    def __init__(self, changes: DomainChanges, rows: Sequence[ChangeRow]) -> None:
        super().__init__(rows)
        self._changes = changes

    def linked(self, changing: Changing) -> None:
        changes, run = self._changes, changing.run
        old = {domain.name: domain for domain in changes.old.scale_up_domains}
        if changes.started or changes.restarted:
            with step("scale-up", changing.notify, f"{len(changes.started) + len(changes.restarted)} switches"):
                for domain in changes.restarted:
                    _restart(changes.new, run, old[domain.name], domain)
                for domain in changes.started:  # one of an apply that was killed may have another description
                    domain_switch(run, domain.name).stop()
                start_domain_switches(changes.new, run)
        write_host_gpus(changes.new, run)

    def routed(self, changing: Changing) -> None:
        """End the switches of domains that are no more, while their wires are there: ends of GPUs are told."""
        for domain in self._changes.ended:
            domain_switch(changing.run, domain.name).stop()

    def removed(self, changing: Changing) -> None:
        """Remove the files of domains and of hosts that are no more."""
        for domain in self._changes.ended:
            shutil.rmtree(domain_switch(changing.run, domain.name).run_directory, ignore_errors=True)
        for host in _hosts(self._changes.old) - _hosts(self._changes.new):
            shutil.rmtree(gpu_file(changing.run, host).parent, ignore_errors=True)


def _restart(plan: LabPlan, run: Path, old: DomainPlan, new: DomainPlan) -> None:
    """Put a new switch in the place of a domain's old one, with the errors that were set on its links."""
    switch = domain_switch(run, new.name)
    errors = errors_of(old, _status(run, new.name))
    switch.stop()
    switch.start(namespace_name(plan.lab, new.node), switch_description(plan, new))
    for wire in new.wires:
        if (of_link := errors.get(_link(wire))) is not None:
            switch.set_link(wire.gpu, wire.plane - 1, **asdict(of_link))


def errors_of(domain: DomainPlan, status: Mapping[str, Any]) -> dict[_Link, LinkErrors]:
    """The errors that are set on links of a domain, by its switch's status; links without any are left out."""
    found = {}
    for wire, port in zip(domain.wires, status.get("ports", ()), strict=False):  # none: no switch runs
        if (errors := LinkErrors(**port["errors"])) != LinkErrors():
            found[_link(wire)] = errors
    return found


def _link(wire: DomainWire) -> _Link:
    return wire.host, wire.local_gpu, wire.plane


def _status(run: Path, domain: str) -> Mapping[str, Any]:
    """Return how a domain's switch does; empty where none runs."""
    try:
        return domain_switch(run, domain).status()
    except SwitchMissing:
        return {}


def _hosts(plan: LabPlan) -> set[str]:
    return {wire.host for domain in plan.scale_up_domains for wire in domain.wires}


def domains_change(running: RunningLab, lab: Lab, plan: LabPlan) -> DomainsChange | None:
    """Return what makes the domains of a lab that is up those of `lab`; None where nothing differs.

    Raises `ChangeRefused` for a container that would get its first GPUs, and `SwitchError` for a switch that runs and
    does not answer.
    """
    changes = compare_domains(running.plan, plan, {})
    if changes.restarted:
        run = running.processes_directory
        in_use = {domain.name: int(_status(run, domain.name).get("open_gpus", 0)) for domain in changes.restarted}
        changes = compare_domains(running.plan, plan, in_use)
    rows = list(changes.rows)
    if not rows and running.model.scale_up == lab.scale_up:
        return None
    if not rows:  # nothing that a switch knows of: transfers by time, or words of the file
        rows.append(ChangeRow(effect=Effect.CHANGED, node="", what="scale-up domains"))
    contained = {node.name for node in running.model.nodes if node.runtime != NETNS}
    if blind := (_hosts(plan) - _hosts(running.plan)) & contained:
        raise ChangeRefused(
            f"{min(blind)} is a container, which sees the files of its GPUs from its start on, and had none",
            hint="deploy --reconfigure replaces the lab",
        )
    return DomainsChange(changes, rows)
