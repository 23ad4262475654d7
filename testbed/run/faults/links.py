"""Faults of a link: its carrier goes (once, or again and again), it changes, or a storm of pauses stops its peer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from testbed.base.errors import Finding
from testbed.base.units import SHARE, Duration, Rate, split_quantity
from testbed.lab.core.deploy.links.changes import LOSSES, LinkChange
from testbed.lab.core.model import Lab
from testbed.lab.features.scale_up.links import find_links
from testbed.run.faults.lab_fault import FaultPlace, FaultSite, FaultSpan, LabFault, carriers
from testbed.run.schema.model import Scalar


class LinkDown(LabFault):
    """The port's carrier goes, and with it its peer's."""

    kind = "link-down"
    place = FaultPlace.LINK

    @property
    def links(self) -> str:
        """The links that it happens to, as `testbed link` names them."""
        return self.target

    def holds(self, lab: Lab) -> Mapping[str, str]:
        if self.of_scale_up:
            return {f"the carrier of {link.name}": "" for link in find_links(lab, self.links)}
        return carriers(lab, lambda link: self.target in (str(link.a), str(link.b)))

    def do(self, site: FaultSite) -> None:
        self._set(site, up=False)

    def undo(self, site: FaultSite) -> None:
        self._set(site, up=True)

    def _set(self, site: FaultSite, *, up: bool) -> None:
        if site.subnet is not None and site.subnet.has_port(self.links):
            site.subnet.set_link(self.links, up=up)
        else:
            site.links.set(self.links, LinkChange(up=up))

    @property
    def may_lose(self) -> bool:
        return not self.of_scale_up


class LinkFlap(LinkDown):
    """The port's carrier goes every `period` for half of it, and is back for good at `until`."""

    kind = "link-flap"

    def spans(self) -> list[FaultSpan]:
        at, until, period = self.fault.at, self.fault.until, self.fault.period
        if not isinstance(at, Duration) or not isinstance(until, Duration) or period is None:
            return super().spans()
        begins = range(at.ns, until.ns, period.ns)
        return [FaultSpan(begin_ns=begin, end_ns=min(begin + period.ns // 2, until.ns)) for begin in begins]


KEEP_ORDER = frozenset({"rate", "both"})
"""Settings of a link with which no packet overtakes another: a delay that shrinks, or varies, lets some."""


class LinkSet(LabFault):
    """The settings of what the port sends change; with `both`, those of what its peer sends as well."""

    kind = "link-set"
    place = FaultPlace.LINK

    def check(self, lab: Lab) -> Iterator[Finding]:
        misplaced = [*self.place_findings(lab)]
        yield from misplaced
        if not misplaced:
            yield from self._rate_findings(lab)
        needs = [key for key in LOSSES if key in self.fault.settings]
        if needs and not self.of_scale_up and lab.policy_of(self.target) is None:
            yield Finding(
                code="loss-without-qos",
                keys=("set", needs[0]),
                message=f"{needs[0]} needs the eBPF data path, which qos: brings",
                hint="add `qos: {preset: uec}`",
                at_key=True,
            )

    def holds(self, lab: Lab) -> Mapping[str, str]:
        """All settings of a port, because its end gives back all of them."""
        if self.of_scale_up:
            return {f"the settings of {link.name}": "" for link in find_links(lab, self.target)}
        ends = ({str(link.a), str(link.b)} for link in lab.links)
        mine = next(both for both in ends if self.target in both) if self._both else {self.target}
        return {f"the settings of {end}": "" for end in sorted(mine)}

    def do(self, site: FaultSite) -> None:
        site.links.set(self.target, link_change(self.fault.settings), both=self._both)

    def undo(self, site: FaultSite) -> None:
        site.links.reset(self.target, both=self._both)

    @property
    def may_lose(self) -> bool:
        return not self.of_scale_up and any(key in self.fault.settings for key in LOSSES)

    @property
    def keeps_order(self) -> bool:
        return self.of_scale_up or KEEP_ORDER.issuperset(self.fault.settings)

    def _rate_findings(self, lab: Lab) -> Iterator[Finding]:
        """A rate that is more than a link is made for."""
        change = link_change(self.fault.settings)
        for name, declared in self._declared(lab):
            wanted = change.rate.bps if change.rate is not None else declared.bps * (change.rate_share or 0)
            if wanted > declared.bps:
                message = f"{name} is made for {declared}, and can be made slower alone"
                yield Finding(code="out-of-range", keys=("set", "rate"), message=message, hint="rate: 50%")
                return

    def _declared(self, lab: Lab) -> Iterator[tuple[str, Rate]]:
        """The links that are meant, and the rate of each."""
        if self.of_scale_up:
            return ((link.name, lab.scale_up.plane_rate(link.plane)) for link in find_links(lab, self.target))
        return ((self.target, link.rate) for link in lab.links if self.target in (str(link.a), str(link.b)))

    @property
    def _both(self) -> bool:
        return bool(self.fault.settings.get("both", False))


def link_change(settings: Mapping[str, Scalar]) -> LinkChange:
    """The words of a scenario file as a change of a link. Raises `ValueError` for what is none."""
    rate = None if settings.get("rate") is None else str(settings["rate"])
    is_share = rate is not None and split_quantity(rate)[1] in SHARE.units
    every, burst = settings.get("loss_every"), settings.get("burst")
    return LinkChange(
        rate=Rate.parse(rate) if rate is not None and not is_share else None,
        rate_share=_share(rate) if is_share else None,
        delay=_duration(settings.get("delay")),
        jitter=_duration(settings.get("jitter")),
        loss=_share(settings.get("loss")),
        loss_every=None if every is None else int(every),
        burst=None if burst is None else float(burst),
        corruption=_share(settings.get("corruption")),
        silent=None if settings.get("silent") is None else bool(settings["silent"]),
    )


def _duration(value: Scalar | None) -> Duration | None:
    return None if value is None else Duration.parse(str(value))


def _share(value: Scalar | None) -> float | None:
    """A share that is written as a number, or in a way that files have it."""
    return None if value is None else float(SHARE.read(str(value)))


LONGEST = Duration.parse("1h")
"""The longest time that a storm lasts of which nobody knows when it ends: it is undone then, or when the run ends."""
_ENDED_NS = 1
"""The length of the pause that ends a storm."""


class PfcStorm(LabFault):
    """The port asks its peer to pause the priority that `settings` names, without a reason.

    Source: IEEE 802.1Qbb for the frames; Guo et al., "RDMA over Commodity Ethernet at Scale", SIGCOMM 2016, section
    4.3, for storms.
    """

    kind = "pfc-storm"
    place = FaultPlace.LINK

    def check(self, lab: Lab) -> Iterator[Finding]:
        yield from self.place_findings(lab)
        node, _, interface = self.target.partition(":")
        policy = lab.policy_of(self.target)
        classes = () if policy is None else policy.of(node, interface).classes
        lossless = {item.priority: item.name for item in classes if item.lossless}
        if self._priority in lossless:
            return
        known = ", ".join(f"{priority} ({name})" for priority, name in sorted(lossless.items()))
        without = "add `qos: {preset: dcqcn}`: storms pause lossless classes alone"
        yield Finding(
            code="unknown-priority",
            keys=("storm", "priority"),
            message=f"{self.target} has no lossless class of priority {self._priority}",
            hint=f"lossless there: {known}" if known else without,
        )

    def holds(self, lab: Lab) -> Mapping[str, str]:
        return {f"the pauses of priority {self._priority} by {self.target}": ""}

    def do(self, site: FaultSite) -> None:
        at, until = self.fault.at, self.fault.until
        if isinstance(at, Duration) and isinstance(until, Duration):
            self._pause(site, until.ns - at.ns)
        else:
            self._pause(site, LONGEST.ns)

    def undo(self, site: FaultSite) -> None:
        self._pause(site, _ENDED_NS)

    @property
    def may_lose(self) -> bool:
        return False

    @property
    def _priority(self) -> int:
        return int(self.fault.settings["priority"])

    def _pause(self, site: FaultSite, duration_ns: int) -> None:
        numbers = site.lab.plan.port_numbers
        site.lab.pause_agent.storm(site.lab.name, numbers[self.target], self._priority, duration_ns)
