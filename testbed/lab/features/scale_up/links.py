"""The links of a lab's scale-up domains by the names that people give them.

    p1-s1-h1.gpu1:plane2      the link of one GPU to one plane; also p1-s1-h1:gpu1p2, by its interface
    p1-s1-h1.gpu1:planes      all links of one GPU
    p1-s1:plane3              a switch chip: the links of all GPUs of a domain to one plane
    p1-s1:plane1-2            several of them, such as the chips of one switch tray
    plane3                    the same of a lab that has one domain
    p1-s1-h1.mem1:plane2      the link of a memory device of its domain's pool; also p1-s1-h1:mem1p2
    p1-s1-h1:planes           a compute tray: all links of all GPUs of a host

GPUs of a host count from 1 in the order of its rails, as planes do. A domain that ends at its host has the host's name.
A domain's memory devices are named with its first host, and are none of that host's GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from testbed.base.errors import TestbedError
from testbed.base.names import known_names_hint
from testbed.lab.core.model import Lab, ScaleUpBy
from testbed.lab.features.scale_up.sizing import domain_ends, find_domains, gpus_of_hosts

EXAMPLE = "p1-s1-h1.gpu1:plane2"
_PLACE = re.compile(
    r"(?:(?P<owner>[a-z][a-z0-9-]*)(?:\.(?P<kind>gpu|mem)(?P<gpu>[1-9][0-9]{0,3}))?:)?"
    r"plane(?:s|(?P<first>[1-9][0-9]{0,2})(?:-(?P<last>[1-9][0-9]{0,2}))?)"
)
_RESEMBLING = re.compile(r"\.gpu|\.mem[0-9]|(?:^|:)plane")
"""Nodes have no dots in their names, and interfaces other names."""
_INTERFACE = re.compile(
    r"(?P<host>[a-z][a-z0-9-]*):(?P<kind>gpu|mem)(?P<gpu>[1-9][0-9]{0,3})p(?P<plane>[1-9][0-9]{0,2})"
)


class NoSuchScaleUpLink(TestbedError):
    """A name of scale-up links that this lab does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpLink:
    """The link of a GPU to a plane. `gpu` is its number in the domain, from 0, and `local_gpu` in its host, from 1."""

    domain: str
    gpu: int
    plane: int
    host: str
    local_gpu: int
    memory: int = 0
    """The number of the memory device that it is of, from 1, which counts behind the host's GPUs; 0: it is a GPU's."""

    @property
    def gpu_name(self) -> str:
        """The name of its GPU, or of its memory device."""
        return f"{self.host}.{self._end}"

    @property
    def _end(self) -> str:
        return f"mem{self.memory}" if self.memory else f"gpu{self.local_gpu}"

    @property
    def name(self) -> str:
        return f"{self.gpu_name}:plane{self.plane}"

    @property
    def interface(self) -> str:
        """The name of its interface in the host."""
        return f"{self._end}p{self.plane}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpPlace:
    """A name of links, taken apart. `owner` is a domain or a host, "" where none is named; `local_gpu` 0 is all GPUs.

    `first` 0 is all planes.
    """

    owner: str = ""
    local_gpu: int = 0
    is_memory: bool = False
    """The number is a memory device's."""
    first: int = 0
    last: int = 0

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Take a name apart; None for what is not written like one."""
        if (found := _INTERFACE.fullmatch(text)) is not None:
            plane = int(found["plane"])
            memory = found["kind"] == "mem"
            return cls(owner=found["host"], local_gpu=int(found["gpu"]), is_memory=memory, first=plane, last=plane)
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        first = int(found["first"] or 0)
        return cls(
            owner=found["owner"] or "",
            local_gpu=int(found["gpu"] or 0),
            is_memory=found["kind"] == "mem",
            first=first,
            last=int(found["last"] or first),
        )


def _of_end(place: ScaleUpPlace, links: Sequence[ScaleUpLink]) -> list[ScaleUpLink]:
    """The links of one GPU or memory device. Raises `NoSuchScaleUpLink`."""
    mine = [link for link in links if bool(link.memory) is place.is_memory]
    found = [link for link in mine if (link.memory or link.local_gpu) == place.local_gpu]
    if not found:
        what = "memory device" if place.is_memory else "GPU"
        known = sorted({link.memory or link.local_gpu for link in mine})
        hint = f"its {what}s are {known[0]} to {known[-1]}" if known else "fabric.scale_up.pool makes memory devices"
        raise NoSuchScaleUpLink(f"{place.owner} has no {what} {place.local_gpu}", hint=hint)
    return found


def resembles_link(text: str) -> bool:
    """Tell whether a text, such as the misspelt "p1-s1-h1.gpu0:plane1", is meant for links of a scale-up domain."""
    return _RESEMBLING.search(text) is not None


def names_gpu_link(text: str) -> bool:
    """Tell whether a text names links of one GPU, as no port of a fabric is named."""
    return _INTERFACE.fullmatch(text) is not None or (
        (".gpu" in text or ".mem" in text) and _PLACE.fullmatch(text) is not None
    )


def list_links(lab: Lab) -> tuple[ScaleUpLink, ...]:
    """The links of all domains of a lab, by domain, plane and GPU."""
    gpus = gpus_of_hosts(lab)
    found: list[ScaleUpLink] = []
    for domain in find_domains(lab):
        ends = domain_ends(domain, gpus, lab.scale_up.devices)
        found += [
            ScaleUpLink(domain=domain.name, gpu=gpu, plane=plane, host=host, local_gpu=local, memory=memory)
            for plane in range(1, lab.scale_up.planes + 1)
            for gpu, (host, local, memory, _) in enumerate(ends)
        ]
    return tuple(found)


def find_link(lab: Lab, text: str) -> ScaleUpLink:
    """The one link that `text` names. Raises `NoSuchScaleUpLink` for none, or several."""
    links = find_links(lab, text)
    if len(links) > 1:
        raise NoSuchScaleUpLink(f"{text} are {len(links)} links", hint=f"one of them is {links[0].name}")
    return links[0]


def find_links(lab: Lab, text: str) -> tuple[ScaleUpLink, ...]:
    """The links that `text` names, at least one. Raises `NoSuchScaleUpLink`, which says what the lab has."""
    place = ScaleUpPlace.parse(text)
    if place is None:
        raise NoSuchScaleUpLink(
            f"{text!r} is no link of a scale-up domain", hint=f"for example {EXAMPLE}: both count from 1"
        )
    if lab.scale_up.by is not ScaleUpBy.PACKETS:
        raise NoSuchScaleUpLink(
            f"{text}: {lab.name} has no links of scale-up domains",
            hint="fabric.scale_up.by: packets in the topology makes them",
        )
    links = list_links(lab)
    domains = list(dict.fromkeys(link.domain for link in links))
    hosts = list(dict.fromkeys(link.host for link in links))
    if not place.owner and len(domains) != 1:
        hint = f"name one: {domains[0]}:{text}" if domains else None
        raise NoSuchScaleUpLink(f"{text}: {lab.name} has {len(domains)} scale-up domains", hint=hint)
    if place.owner and place.owner not in (*domains, *hosts):
        hint = known_names_hint(place.owner, list(dict.fromkeys([*domains, *hosts])))  # a domain may be a host
        raise NoSuchScaleUpLink(f"{lab.name} has no scale-up domain or host of one {place.owner!r}", hint=hint)
    if place.local_gpu and place.owner not in hosts:
        raise NoSuchScaleUpLink(f"{place.owner} is no host", hint=f"GPUs are counted in hosts: {hosts[0]}.gpu1")
    of_owner = [link for link in links if place.owner in ("", link.domain, link.host)]
    if place.local_gpu:
        of_gpu = _of_end(place, of_owner)
    elif place.first and place.owner in ("", *domains):  # a chip has all ends of the domain
        of_gpu = of_owner
    else:
        of_gpu = [link for link in of_owner if not link.memory]
    planes = lab.scale_up.planes
    if place.first > place.last:
        raise NoSuchScaleUpLink(f"{text}: the first plane comes after the last", hint=f"they are 1 to {planes}")
    if not place.first <= place.last <= planes:
        raise NoSuchScaleUpLink(f"{text}: {lab.name} has no such planes", hint=f"they are 1 to {planes}")
    return tuple(link for link in of_gpu if place.first <= link.plane <= place.last or not place.first)
