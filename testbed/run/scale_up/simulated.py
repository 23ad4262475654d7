"""Scale-up domains by packets on the simulator: the C of switches and GPUs' ends, in the simulator's time.

A domain does what is due whenever the simulator comes to it, and as much ahead as nothing else happens meanwhile: who
else may ask its GPUs for something has an event of its own for that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from testbed.endpoints.worker.inside_packets import InsidePackets, PacketEndpoints
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.features.scale_up.apply import domain_links
from testbed.lab.features.scale_up.counters.balance import PlaneBalance, balance_domains
from testbed.lab.features.scale_up.counters.reading import DomainReading, domain_reading
from testbed.lab.features.scale_up.links import ScaleUpLink, find_links, list_links
from testbed.lab.features.scale_up.planes import resolve_change
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Gpu
from testbed.protocols.scale_up.domain.link import LinkErrors
from testbed.protocols.scale_up.domain.virtual import NEVER, VirtualDomain, VirtualEndpoint
from testbed.run.placed.lab import LiveLab
from testbed.run.simulated.site import RunSite

if TYPE_CHECKING:
    from testbed.lab.core.deploy.links.changes import LinkChange


AHEAD_NS = 50_000_000
"""The most that a domain does ahead: it is never quiet, since idle links have heartbeats."""


class SimulatedDomain:
    """One domain, and who is told of what its GPUs have done."""

    def __init__(self, plan: DomainPlan, library: Path, site: RunSite) -> None:
        self._site = site
        self._owners: dict[VirtualEndpoint, InsidePackets] = {}
        self._armed: int | None = None
        self._handling = False
        self.switches = 1
        """The number of switches that it has had."""
        random = Random(f"{site.seed} scale-up {plan.name}")
        self.virtual = VirtualDomain(
            library,
            domain_links(plan),
            gpus=plan.ends,
            voq=plan.links[0].real.voq,
            clock_ns=site.now,
            draw=random.randrange,
            touched=self._touched,
        )

    def open(self, gpu: Gpu, owner: InsidePackets) -> VirtualEndpoint:
        """Open the end of a GPU, whose operations are `owner`'s."""
        found = self.virtual.open(gpu)
        self._owners[found] = owner
        return found

    def shut(self, end: Endpoint) -> None:
        """Close the end of a GPU."""
        for one in [one for one in self._owners if one is end]:
            del self._owners[one]
            self.virtual.shut(one)

    def _touched(self) -> None:
        """Have what is due now done, in an event of its own."""
        if not self._handling:
            self._arm(self._site.now())

    def _arm(self, when: int) -> None:
        network = self._site.network
        if network is not None and (self._armed is None or when < self._armed):
            self._armed = when
            network.at(when, self._act)

    def _act(self, now: int) -> None:
        if now != self._armed:
            return
        self._armed = None
        network = self._site.network
        assert network is not None
        self._handling = True
        try:
            while (when := self.virtual.run(now, min(network.events.next_time(), now + AHEAD_NS))) == now:
                self._tell()
        finally:
            self._handling = False
        if when != NEVER:
            self._arm(when)

    def _tell(self) -> None:
        for end, owner in list(self._owners.items()):
            for done in end.completions():
                owner.on_done(end, done)

    def status(self) -> dict[str, Any]:
        """Return what the switch's process would say of itself."""
        core = self.virtual.core
        assert core is not None
        errors = self.virtual.errors
        return {
            "pid": self.switches,
            "frames": core.frames,
            "socket_drops": self.virtual.lost_frames,
            "times": core.times(),
            "ports": [
                {**port, "errors": dataclasses.asdict(errors.get((port["gpu"], port["plane"]), LinkErrors()))}
                for port in core.counters()
            ],
        }


class SimulatedDomains(PacketEndpoints):
    """The domains of a lab that ends have been opened of, and the endpoints of all programs of a run."""

    def __init__(self, lab: LiveLab, site: RunSite) -> None:
        super().__init__()
        self.clock_ns: Callable[[], int] = site.now
        self._lab = lab
        self._site = site
        self._plans = {domain.name: domain for domain in lab.plan.scale_up_domains}
        self._domains: dict[str, SimulatedDomain] = {}
        self._before: Mapping[str, DomainReading] = {}

    @property
    def live(self) -> bool:
        """Tell whether there are any ends."""
        return bool(self._domains)

    def open(self, library: Path, gpu: Gpu, owner: InsidePackets) -> Endpoint:
        """Open the end of a GPU. Raises `UsageError`."""
        name = owner.domain
        if name not in self._domains:
            self._domains[name] = SimulatedDomain(self._plans[name], library, self._site)
        return self._domains[name].open(gpu, owner)

    def shut(self, endpoint: Endpoint) -> None:
        """Close the end of a GPU."""
        for domain in self._domains.values():
            domain.shut(endpoint)

    def close(self) -> None:
        """Give everything back."""
        for domain in self._domains.values():
            domain.virtual.close()
        self._domains.clear()

    # --- faults ------------------------------------------------------------------------------------------

    def change(self, place: str, change: LinkChange | None) -> None:
        """Change the links that `place` names, in both directions; None: they are as declared again."""
        for link in find_links(self._lab.model, place):
            domain = self._domains.get(link.domain)
            if domain is None:
                continue
            key = link.gpu, link.plane - 1
            errors = LinkErrors(seed=self._site.seed)
            if change is not None:
                before = domain.virtual.errors.get(key, errors)
                errors = dataclasses.replace(before, **self._resolved(link, change))
            domain.virtual.set_errors(*key, errors)

    def _resolved(self, link: ScaleUpLink, change: LinkChange) -> dict[str, Any]:
        return resolve_change(self._plans[link.domain], link, change, self._lab.plan.k)

    def kill_switch(self, name: str) -> None:
        """End the switch of a domain."""
        if (domain := self._domains.get(name)) is not None:
            domain.virtual.kill_switch()

    def start_switch(self, name: str) -> None:
        """Let another switch take its place, with its links as they are declared."""
        if (domain := self._domains.get(name)) is not None and domain.virtual.core is None:
            domain.switches += 1
            domain.virtual.start_switch()

    # --- what was seen -----------------------------------------------------------------------------------

    def begin_counting(self) -> None:
        """Leave out of the readings what happened until now."""
        for domain in self._domains.values():
            if domain.virtual.core is not None:
                domain.virtual.core.forget_peaks()
        self._before = {one.domain: one for one in self._read()}

    def readings(self) -> tuple[DomainReading, ...]:
        """Return what each domain has counted since `begin_counting`."""
        found = self._read()
        return tuple(one.since(self._before[one.domain]) if one.domain in self._before else one for one in found)

    def balance(self) -> PlaneBalance | None:
        """Hold all counters since the begin against each other; None where no domain was used."""
        read = [one for one in self._read() if not one.problem]
        return balance_domains(read, self._lab.plan) if read else None

    def _read(self) -> tuple[DomainReading, ...]:
        links: dict[str, list[ScaleUpLink]] = {}
        for link in list_links(self._lab.model):
            links.setdefault(link.domain, []).append(link)
        return tuple(
            domain_reading(name, links[name], domain.status())
            if domain.virtual.core is not None
            else DomainReading(domain=name, problem="its switch does not run")
            for name, domain in self._domains.items()
        )
