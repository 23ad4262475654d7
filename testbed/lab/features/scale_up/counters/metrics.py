"""The counters of scale-up domains as families of OpenMetrics: a series for each link, and for each channel of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from testbed.lab.features.scale_up.counters.names import LINK_COUNTERS, TRAFFIC, LinkCounter
from testbed.lab.features.scale_up.counters.reading import ChannelReading, DomainReading, LinkReading

_LINK = ("lab", "domain", "plane", "host", "gpu")
_CHANNEL = (*_LINK, "vc")
_IN_CHANNELS = frozenset(item.name for item in TRAFFIC)
_CREDITS: tuple[tuple[str, str, Callable[[ChannelReading], int]], ...] = (
    (
        "credits_used",
        "Credits the switch has in use at the GPU, S_CC - S_CF (SAI_PORT_STAT_CBFC_SENDER_CREDITS_USED).",
        lambda channel: channel.used,
    ),
    ("credits_held", "Credits in use in the switch's input buffer, R_CC - R_CF.", lambda channel: channel.held),
    ("credits_held_max", "The most that were in use there.", lambda channel: channel.deepest),
)


def domain_families(domains: Mapping[str, Sequence[DomainReading]]) -> Iterator[Metric]:
    """The families of all labs' domains, by lab; none where no lab has any.

    `gpu` counts from 1 in the host, as names of links do. Traffic and credits are series of channels, everything else
    of links; a link that has carried nothing has no series of traffic.
    """
    if not any(domains.values()):
        return
    up = GaugeMetricFamily("testbed_scale_up_switch_up", "1 if the domain's switch answers.", labels=("lab", "domain"))
    for lab, readings in domains.items():
        for domain in readings:
            up.add_metric((lab, domain.domain), 0 if domain.problem else 1)
    yield up
    links = [(lab, link) for lab, readings in domains.items() for domain in readings for link in domain.links]
    yield _state(links)
    for counter in LINK_COUNTERS:
        yield _family(counter, links)
    for name, words, read in _CREDITS:
        family = GaugeMetricFamily(f"testbed_scale_up_{name}", words, labels=_CHANNEL)
        for lab, link in links:
            if link.is_active:
                for channel in link.channels:
                    family.add_metric((*_labels(lab, link), str(channel.vc)), read(channel))
        yield family


def _family(counter: LinkCounter, links: Sequence[tuple[str, LinkReading]]) -> Metric:
    others = ", ".join(name for name in (counter.full_sai, counter.full_dcgm) if name)
    words = f"{counter.words} ({others})." if others else f"{counter.words}."
    by_channel = counter.name in _IN_CHANNELS
    family = CounterMetricFamily(
        f"testbed_scale_up_{counter.series}", words, labels=_CHANNEL if by_channel else _LINK, unit=counter.unit
    )
    scale = 1e9 if counter.unit == "seconds" else 1
    for lab, link in links:
        if not by_channel:
            family.add_metric(_labels(lab, link), link.counters[counter.name])
        elif link.is_active:
            for channel in link.channels:
                family.add_metric((*_labels(lab, link), str(channel.vc)), channel.counters[counter.name] / scale)
    return family


def _state(links: Sequence[tuple[str, LinkReading]]) -> Metric:
    family = GaugeMetricFamily(
        "testbed_scale_up_link_up", "0 if the link was taken down, or is silent, on purpose.", labels=_LINK
    )
    for lab, link in links:
        family.add_metric(_labels(lab, link), 0 if link.errors.down or link.errors.silent else 1)
    return family


def _labels(lab: str, link: LinkReading) -> tuple[str, ...]:
    place = link.link
    return lab, place.domain, str(place.plane), place.host, str(place.local_gpu)
