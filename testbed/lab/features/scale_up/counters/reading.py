"""Reading the switches of a lab's scale-up domains: what each link has counted, and how it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.base.errors import TestbedError
from testbed.daemons.switchd.errors import SwitchMissing
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.features.scale_up.counters.names import LINK_COUNTERS, TRAFFIC
from testbed.lab.features.scale_up.links import ScaleUpLink, list_links
from testbed.lab.features.scale_up.watch_switches import domain_switch
from testbed.protocols.scale_up.cyclic import distance
from testbed.protocols.scale_up.domain.link import LinkErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReading:
    """One virtual channel of a link, at the switch's end. `counters` are those of `TRAFFIC`.

    The four counters of CBFC (Ultra Ethernet 1.0 section 5.2) have 20 bits: of what the switch sends, credits consumed
    (S_CC) and freed (S_CF); of what it receives, R_CC and R_CF.
    """

    vc: int
    counters: Mapping[str, int]
    deepest: int
    """The most credits of the input buffer that were in use at once."""
    s_cc: int
    s_cf: int
    r_cc: int
    r_cf: int

    @property
    def used(self) -> int:
        """Credits that the switch has in use at the GPU (S_CU)."""
        return distance(self.s_cf, self.s_cc)

    @property
    def held(self) -> int:
        """Credits that frames hold in the switch's input buffer."""
        return distance(self.r_cf, self.r_cc)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReading:
    """One link at the switch's end. `counters` are those of `LINK_COUNTERS`."""

    link: ScaleUpLink
    counters: Mapping[str, int]
    errors: LinkErrors
    """The errors that were put on it on purpose."""
    channels: tuple[ChannelReading, ...]

    @property
    def is_active(self) -> bool:
        """Tell whether any data went by it, either way."""
        return any(self.counters[item.name] for item in TRAFFIC)

    @property
    def sai(self) -> dict[str, int]:
        """The counters by SAI's names, with those of credits that are the port's."""
        named = {item.full_sai: self.counters[item.name] for item in LINK_COUNTERS if item.sai}
        return named | {"SAI_PORT_STAT_CBFC_SENDER_CREDITS_USED": sum(channel.used for channel in self.channels)}

    @property
    def dcgm(self) -> dict[str, int]:
        """The counters by DCGM's names."""
        return {item.full_dcgm: self.counters[item.name] for item in LINK_COUNTERS if item.dcgm}


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainReading:
    """The switch of one domain at one moment. `problem` says why there is nothing of it."""

    domain: str
    pid: int = 0
    frames: int = 0
    socket_drops: int = 0
    """Frames that the kernel had no room for: then nothing else is certain."""
    lateness_p999_ns: int = 0
    """The lateness with which frames began to leave, in real time: the 0.999 percentile since the start."""
    links: tuple[LinkReading, ...] = ()
    problem: str = ""

    def since(self, before: DomainReading) -> DomainReading:
        """The counters without those of an earlier reading; of a switch that was started meanwhile they are all."""
        if self.problem or before.pid != self.pid:
            return self
        earlier = {item.link: item for item in before.links}
        return replace(
            self,
            frames=self.frames - before.frames,
            socket_drops=self.socket_drops - before.socket_drops,
            links=tuple(_link_since(item, earlier[item.link]) for item in self.links),
        )


def read_domains(lab: RunningLab) -> tuple[DomainReading, ...]:
    """A reading of each scale-up domain that has a switch; () for a lab without packets."""
    domains = lab.whole.plan.scale_up_domains
    if not domains:
        return ()
    links: dict[str, list[ScaleUpLink]] = {}
    for link in list_links(lab.whole.model):
        links.setdefault(link.domain, []).append(link)
    run = lab.state.run_directory(lab.name)
    return tuple(_read(run, domain.name, links[domain.name]) for domain in domains)


def _read(run: Path, domain: str, links: Sequence[ScaleUpLink]) -> DomainReading:
    try:
        status = domain_switch(run, domain).status()
    except SwitchMissing:
        return DomainReading(domain=domain, problem="its switch does not run")
    except TestbedError as error:
        return DomainReading(domain=domain, problem=error.message)
    return domain_reading(domain, links, status)


def domain_reading(domain: str, links: Sequence[ScaleUpLink], status: Mapping[str, Any]) -> DomainReading:
    """Return what the switch of a domain says of itself as a reading; `links` are in the order of its ports."""
    return DomainReading(
        domain=domain,
        pid=status["pid"],
        frames=status["frames"],
        socket_drops=status["socket_drops"],
        lateness_p999_ns=status["times"]["lateness"]["p999_ns"],
        links=tuple(_link(link, port) for link, port in zip(links, status["ports"], strict=True)),
    )


def _link(link: ScaleUpLink, port: Mapping[str, Any]) -> LinkReading:
    return LinkReading(
        link=link,
        counters={item.name: item.read(port) for item in LINK_COUNTERS},
        errors=LinkErrors(**port["errors"]),
        channels=tuple(
            ChannelReading(
                vc=number,
                counters={item.name: int(vc[item.key]) for item in TRAFFIC},
                **{name: int(vc[name]) for name in ("deepest", "s_cc", "s_cf", "r_cc", "r_cf")},
            )
            for number, vc in enumerate(port["vcs"])
        ),
    )


def _link_since(now: LinkReading, before: LinkReading) -> LinkReading:
    channels = tuple(
        replace(channel, counters=_difference(channel.counters, earlier.counters))
        for channel, earlier in zip(now.channels, before.channels, strict=True)
    )
    return replace(now, counters=_difference(now.counters, before.counters), channels=channels)


def _difference(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: value - before[name] for name, value in now.items()}
