"""Holds the counters of scale-up domains against each other, as a switch gives them: all of one moment.

* In each plane every frame that was stored has been sent, refused, given up because its output was down, or waits:
  then it holds credits of its input.
* No channel has more credits in use than its buffer has, on either side.

That a sender's credits are all at the receiver or leaked (S_CC = R_CC + leaked) takes both ends of a link. The other
end is in the process of a worker or a tool, and goes with it; `testbed check` has both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.scale_up.apply import domain_link
from testbed.lab.features.scale_up.counters.reading import DomainReading, LinkReading
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneImbalance:
    """A law of conservation that does not hold. `place` is a plane ("p1-s1 plane 2") or a channel of a link."""

    law: str
    place: str
    amount: int
    """Frames or credits too many, or negative: missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneBalance:
    """The findings: `checked` laws of all domains whose switch runs."""

    checked: int
    imbalances: tuple[PlaneImbalance, ...]

    def __str__(self) -> str:
        if not self.imbalances:
            return f"credits and frames add up ({self.checked} sums)"
        first = self.imbalances[0]
        more = f", and {len(self.imbalances) - 1} more" if len(self.imbalances) > 1 else ""
        return f"{first.law} does not hold at {first.place} by {first.amount}{more}"


def balance_domains(domains: Sequence[DomainReading], plan: LabPlan) -> PlaneBalance:
    """Hold the counters since the start of each switch against each other. Those of a span of time do not do."""
    checked = 0
    found: list[PlaneImbalance] = []
    for domain in domains:
        for plane, links in _by_plane(domain).items():
            settings = domain_link(plan, plane)
            checked += 1 + 2 * sum(len(link.channels) for link in links)
            found += _frames(f"{domain.domain} plane {plane}", links)
            for link in links:
                found += _credits(link, settings)
    return PlaneBalance(checked=checked, imbalances=tuple(found))


def _by_plane(domain: DomainReading) -> dict[int, list[LinkReading]]:
    found: dict[int, list[LinkReading]] = {}
    for link in domain.links:
        found.setdefault(link.link.plane, []).append(link)
    return found


def _frames(place: str, links: Sequence[LinkReading]) -> Iterator[PlaneImbalance]:
    def total(*names: str) -> int:
        return sum(link.counters[name] for link in links for name in names)

    came = total("received_frames", "returned")  # what is given back is undelivered, and sent all the same
    waiting = came - total("sent_frames", "refused", "undelivered")
    holding = any(channel.held for link in links for channel in link.channels)
    if waiting < 0 or (waiting and not holding):
        yield PlaneImbalance(
            law="stored + returned = sent + refused + undelivered + waiting", place=place, amount=waiting
        )


def _credits(link: LinkReading, settings: LinkSettings) -> Iterator[PlaneImbalance]:
    for channel, capacity in zip(link.channels, settings.capacity, strict=True):
        place = f"{link.link.name} VC {channel.vc}"
        if channel.held > capacity:
            yield PlaneImbalance(law="R_CC - R_CF <= buffer", place=place, amount=channel.held - capacity)
        if settings.flow_control is FlowControl.CREDITS and channel.used > capacity:
            yield PlaneImbalance(law="S_CC - S_CF <= limit", place=place, amount=channel.used - capacity)
