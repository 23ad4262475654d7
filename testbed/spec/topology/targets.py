"""`targets:` of a network: the storage that its hosts reach over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from testbed.errors import Problem
from testbed.fabric.networks import TargetParams
from testbed.model.storage import Medium, ServedBy, StorageProtocol, StorageTarget
from testbed.spec.validation.fields import (
    DurationField,
    NodeName,
    OneOf,
    Quantity,
    RateField,
    Section,
    Whole,
    Written,
)
from testbed.spec.validation.model import SpecModel
from testbed.spec.yaml.document import Document
from testbed.units import ByteCount

MAX_TARGETS = 64
"""Under one name."""
MAX_DEPTH = 4096
DEFAULT_CAPACITY = ByteCount.parse("1TiB")


class MediumSpec(SpecModel):
    """`medium:` of a storage target."""

    rate: Written[RateField] = Field(
        default=None, description="Gives how fast it reads and writes in all; by default it is no limit."
    )
    latency: Written[DurationField] = Field(
        default=None, description="Gives how long a command takes before its data moves; by default no time."
    )
    depth: Written[Annotated[int, Whole(1, MAX_DEPTH)]] = Field(
        default=None,
        description=f"Gives how many commands it works on at once; the default is {Medium().depth}.",
    )


class TargetSpec(SpecModel):
    """An entry of `targets:`."""

    protocol: Written[Annotated[str, OneOf(tuple(StorageProtocol), noun="protocol")]] = Field(
        default=None, description="Says what it speaks; the default is nvme-tcp."
    )
    served_by: Written[Annotated[str, OneOf(tuple(ServedBy), noun="implementation")]] = Field(
        default=None,
        description="Says what serves it: a process in user space, the default, or the kernel's target (nvmet-tcp).",
    )
    count: Written[Annotated[int, Whole(1, MAX_TARGETS)]] = Field(
        default=None, description="Makes so many targets, with a number behind the name: flash makes flash1, flash2."
    )
    capacity: Written[Annotated[ByteCount, Quantity(ByteCount, ByteCount.parse("1000TiB"))]] = Field(
        default=None, description=f"Gives what it holds; the default is {DEFAULT_CAPACITY}."
    )
    rate: Written[RateField] = Field(
        default=None, description="Gives the rate of each of its ports; by default that of a host's."
    )
    medium: Section[MediumSpec] = Field(default=MediumSpec(), description="Describes what its data lies on.")

    def target(self) -> StorageTarget:
        medium = Medium(rate=self.medium.rate, latency=self.medium.latency, depth=self.medium.depth or Medium().depth)
        return StorageTarget(
            protocol=StorageProtocol(self.protocol or StorageProtocol.NVME_TCP),
            capacity=self.capacity or DEFAULT_CAPACITY,
            medium=medium,
            served_by=ServedBy(self.served_by or ServedBy.USER_SPACE),
        )


TargetsField = Section[dict[NodeName, Section[TargetSpec]]]


def find_taken_names(
    document: Document, network: str, specs: Mapping[str, TargetSpec], nodes: Iterable[str]
) -> list[Problem]:
    """Targets whose names other `nodes` have, or other targets of the network."""
    seen = dict.fromkeys(nodes, "")
    problems = []
    for key, spec in specs.items():
        for name in _names(key, spec):
            if name in seen:
                whose = f", a target of {seen[name]}" if seen[name] else ""
                problems.append(
                    document.problem(
                        "name-taken",
                        ("networks", network, "targets", key),
                        f"{name} is there already{whose}",
                        hint="another name",
                        key=True,
                    )
                )
                break
            seen[name] = key
    return problems


def _names(key: str, spec: TargetSpec) -> list[str]:
    return [key] if spec.count is None else [f"{key}{number}" for number in range(1, spec.count + 1)]


def target_params(specs: Mapping[str, TargetSpec]) -> tuple[TargetParams, ...]:
    """The targets of a network, in the order of the file."""
    return tuple(
        TargetParams(name=name, target=spec.target(), rate=spec.rate)
        for key, spec in specs.items()
        for name in _names(key, spec)
    )
