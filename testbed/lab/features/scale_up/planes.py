"""Changing the links of a running lab's scale-up domains, and bringing back a switch that has died.

A link of a GPU to a plane is a wire to the domain's switch, and it is the switch that loses, damages and slows down
frames on it, in both directions. So a change lasts as long as the switch's process does, and is recorded nowhere else:
one that is started anew has all links as the topology declares them. The other ends of the wires belong to workers
and tools, which come and go with their runs; between runs a link's state is the switch's.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import TestbedError
from testbed.base.names import known_names_hint
from testbed.base.units import Rate
from testbed.daemons.switchd.errors import SwitchMissing
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.features.scale_up.links import NoSuchScaleUpLink, ScaleUpLink, ScaleUpPlace, find_links, resembles_link
from testbed.lab.features.scale_up.watch_switches import domain_switch

if TYPE_CHECKING:
    from testbed.daemons.switchd.client import DomainSwitch
    from testbed.lab.core.deploy.links.changes import LinkChange
    from testbed.protocols.scale_up.domain.link import LinkErrors


class PlaneRefused(TestbedError):
    """A change that links of scale-up domains do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneLink:
    """A link of a GPU to a plane as it is now. `rate_bps` is what is declared, in the lab, each way.

    `errors` is None where no switch runs.
    """

    link: ScaleUpLink
    rate_bps: int
    errors: LinkErrors | None


class PlaneControl:
    """Changes links of scale-up domains of one lab by their names (`testbed.lab.features.scale_up.links`).

    Methods raise `NoSuchScaleUpLink`, and `SwitchError` for a switch that cannot be started or does not answer.
    """

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._found: dict[str, tuple[ScaleUpLink, ...]] = {}

    # ------------------------------------------------------------------ links

    def are_meant(self, place: str) -> bool:
        """Tell whether a text names links of scale-up domains, though it may be misspelt."""
        return ScaleUpPlace.parse(place) is not None or resembles_link(place)

    def prepare(self, place: str) -> None:
        """Make sure that the links are there, and that their switches run."""
        for domain in _by_domain(self._find(place)):
            self._running(domain)

    def _find(self, place: str) -> tuple[ScaleUpLink, ...]:
        if place not in self._found:
            self._found[place] = find_links(self._lab.model, place)
        return self._found[place]

    def set(self, place: str, change: LinkChange) -> None:
        """Change links, in both directions. A switch that does not run is started before.

        Raises `PlaneRefused` for what such a link does not have.
        """
        links = self._find(place)
        self._check_burst(links, change)
        of_planes = {link.plane: self._resolve(link, change) for link in links}
        for domain, of_domain in _by_domain(links).items():
            switch = self._running(domain)
            left = dict(of_planes)
            while left:  # planes may have rates of their own; all that change alike change at one moment
                changes = next(iter(left.values()))
                planes = [plane for plane, resolved in left.items() if resolved == changes]
                switch.set_links([(link.gpu, link.plane - 1) for link in of_domain if link.plane in planes], changes)
                for plane in planes:
                    del left[plane]

    def _check_burst(self, links: Sequence[ScaleUpLink], change: LinkChange) -> None:
        """Refuse to say in what runs a link loses frames that loses none. Raises `PlaneRefused`."""
        if change.burst is None or change.burst <= 1 or change.loss:
            return
        for domain, of_domain in _by_domain(links).items():
            errors = self._errors(domain) if change.loss is None else None
            for link in of_domain:
                if errors is None or not errors[link.gpu, link.plane].loss:
                    raise PlaneRefused(
                        f"{link.name}: a burst says how many frames it loses one after the other, and it loses none",
                        hint="say with it which share of them is lost: --loss 0.1%",
                    )

    def reset(self, place: str) -> None:
        """Bring links back to what the topology declares. A switch that does not run is started."""
        self._reset(self._find(place))

    def reset_all(self) -> list[str]:
        """Bring back every link that was changed; their names."""
        changed = self.changed()
        self._reset(link for name in changed for link in self._find(name))
        return changed

    def _reset(self, links: Iterable[ScaleUpLink]) -> None:
        for domain, of_domain in _by_domain(links).items():
            self._running(domain).set_links([(link.gpu, link.plane - 1) for link in of_domain], None)

    def changed(self) -> list[str]:
        """The names of the links that are not as declared. Those of a switch that does not run are none of them."""
        from testbed.protocols.scale_up.domain.link import LinkErrors

        return [
            item.link.name
            for domain in self._lab.plan.scale_up_domains
            for item in self.show(f"{domain.name}:planes")
            if item.errors not in (None, LinkErrors())
        ]

    def show(self, place: str) -> list[PlaneLink]:
        """The links as they are now; nothing is started for it."""
        found: list[PlaneLink] = []
        for domain, links in _by_domain(self._find(place)).items():
            errors = self._errors(domain)
            found += [
                PlaneLink(
                    link=link,
                    rate_bps=self._rate_bps(link),
                    errors=None if errors is None else errors[link.gpu, link.plane],
                )
                for link in links
            ]
        return found

    # ------------------------------------------------------------------ switches

    def kill_switch(self, domain: str) -> None:
        """End a domain's switch as nobody would: by SIGKILL. Raises `SwitchMissing` where none runs."""
        pid = self._switch(domain).status()["pid"]
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)

    def start_switch(self, domain: str) -> bool:
        """Start a domain's switch with its links as declared; whether it did not run before."""
        if self._switch(domain).is_running():
            return False
        from testbed.lab.features.scale_up.apply import start_domain_switches

        start_domain_switches(self._lab.plan, self._run, only=(domain,))
        return True

    def _running(self, domain: str) -> DomainSwitch:
        self.start_switch(domain)
        return self._switch(domain)

    def _switch(self, domain: str) -> DomainSwitch:
        return domain_switch(self._run, self._domain(domain).name)

    def _domain(self, name: str) -> DomainPlan:
        domains = {domain.name: domain for domain in self._lab.plan.scale_up_domains}
        if name not in domains:
            hint = known_names_hint(name, list(domains))
            raise NoSuchScaleUpLink(f"{self._lab.name} has no scale-up domain {name!r} with a switch", hint=hint)
        return domains[name]

    @property
    def _run(self) -> Path:
        return self._lab.state.run_directory(self._lab.name)

    # ------------------------------------------------------------------ values

    def _errors(self, domain: str) -> dict[tuple[int, int], LinkErrors] | None:
        """Return the errors of each link of a domain, by GPU and plane (from 1); None where no switch runs."""
        from testbed.protocols.scale_up.domain.link import LinkErrors

        try:
            ports = self._switch(domain).status()["ports"]
        except SwitchMissing:
            return None
        return {(port["gpu"], port["plane"] + 1): LinkErrors(**port["errors"]) for port in ports}

    def _rate_bps(self, link: ScaleUpLink) -> int:
        return declared_bps(self._domain(link.domain), link)

    def _resolve(self, link: ScaleUpLink, change: LinkChange) -> dict[str, Any]:
        return resolve_change(self._domain(link.domain), link, change, self._lab.record.k)


LOWEST_BPS = 1_000
"""The least rate of a link, in bit/s of the lab."""


def _by_domain(links: Iterable[ScaleUpLink]) -> dict[str, Sequence[ScaleUpLink]]:
    found: dict[str, list[ScaleUpLink]] = {}
    for link in links:
        found.setdefault(link.domain, []).append(link)
    return dict(found)


def declared_bps(domain: DomainPlan, link: ScaleUpLink) -> int:
    """Return the rate that a link is made for, in bit/s of the lab, each way."""
    return domain.links[link.plane - 1].gpu_rate.bps


def resolve_change(domain: DomainPlan, link: ScaleUpLink, change: LinkChange, k: float) -> dict[str, Any]:
    """Return the change of a link of a domain as its switch takes it, by fields of `LinkErrors`.

    A rate is that of all links of the GPU to the plane together. Raises `PlaneRefused` for what such a link does not
    have.
    """
    for name in ("delay", "jitter"):
        if getattr(change, name) is not None:
            raise PlaneRefused(
                f"{link.name}: the {name} of a link of a scale-up domain cannot be changed",
                hint="its delay is a quarter of fabric.scale_up.rtt in the topology, and it has no jitter",
            )
    found: dict[str, Any] = {}
    if (rate := _lab_rate(domain, link, change, k)) is not None:
        found["rate_bps"] = rate
    named = {"loss": change.loss, "every": change.loss_every, "burst": change.burst, "corrupt": change.corruption}
    named |= {"silent": change.silent, "down": None if change.up is None else not change.up}
    return found | {name: value for name, value in named.items() if value is not None}


def _lab_rate(domain: DomainPlan, link: ScaleUpLink, change: LinkChange, k: float) -> int | None:
    """The rate that is asked for in bit/s of the lab; 0 is what is declared, None that none is asked for."""
    declared = declared_bps(domain, link)
    if change.rate_share is not None:
        wanted = round(declared * change.rate_share)
    elif change.rate is not None:
        wanted = change.rate.scaled(k).bps
    elif change.lab_rate is not None:
        wanted = change.lab_rate.bps
    else:
        return None
    if wanted > declared:
        raise PlaneRefused(
            f"{link.name}: {Rate(wanted)} in the lab is more than the {Rate(declared)} that it is made for",
            hint="a link of a scale-up domain can be made slower: --rate 50%",
        )
    return 0 if wanted == declared else max(LOWEST_BPS, wanted)
