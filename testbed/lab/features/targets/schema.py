"""`targets:` of a network or of the back end: the storage that its hosts reach over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import Problem
from testbed.base.units import ByteCount
from testbed.base.validation.fields import (
    Checked,
    Entries,
    NodeName,
    OneOf,
    Quantity,
    RateField,
    Section,
    Whole,
    Written,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.validation.quantities import FabricTimeField
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.core.fabric.networks import TargetParams
from testbed.lab.core.model.storage import Medium, ServedBy, StorageProtocol, StorageTarget

MAX_TARGETS = 64
"""The most targets that one entry may stand for."""
MAX_DEPTH = 4096
MAX_RAILS = 256
_PROTOCOL = OneOf(tuple(StorageProtocol), noun="protocol")
DEFAULT_CAPACITY = ByteCount.parse("1TiB")


@dataclass(frozen=True, slots=True)
class _Protocols(Checked):
    """A protocol of storage, or a list of them, each once."""

    def check(self, value: object) -> tuple[StorageProtocol, ...]:
        written = value if isinstance(value, list) else [value]
        found = tuple(StorageProtocol(str(_PROTOCOL.check(one))) for one in written)
        if not found or len(set(found)) < len(found):
            raise refusal(
                "unknown-value",
                "must name at least one protocol, and each once",
                f"protocol: {StorageProtocol.NVME_TCP}",
            )
        return found

    def json_schema(self) -> JsonSchemaValue:
        one = _PROTOCOL.json_schema()
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1, "uniqueItems": True}]}


class MediumSpec(SpecModel):
    """`medium:` of a storage target."""

    rate: Written[RateField] = Field(
        default=None, description="Gives how fast it reads and writes in all; by default it is no limit."
    )
    latency: Written[FabricTimeField] = Field(
        default=None, description="Gives how long a command takes before its data moves; by default no time."
    )
    depth: Written[Annotated[int, Whole(1, MAX_DEPTH)]] = Field(
        default=None,
        description=f"Gives how many commands it works on at once; the default is {Medium().depth}.",
    )


class TargetSpec(SpecModel):
    """An entry of `targets:`."""

    protocol: Written[Annotated[tuple[StorageProtocol, ...], _Protocols()]] = Field(
        default=None, description="Says what it speaks, one protocol or a list; the default is nvme-tcp."
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
    medium: Section[MediumSpec] = Field(
        default=MediumSpec.model_construct(), description="Describes what its data lies on."
    )

    def target(self) -> StorageTarget:
        medium = Medium(rate=self.medium.rate, latency=self.medium.latency, depth=self.medium.depth or Medium().depth)
        return StorageTarget(
            protocols=self.protocol or (StorageProtocol.NVME_TCP,),
            capacity=self.capacity or DEFAULT_CAPACITY,
            medium=medium,
            served_by=ServedBy(self.served_by or ServedBy.USER_SPACE),
        )


class BackendTargetSpec(TargetSpec):
    """An entry of `targets:` in `fabric:`."""

    rails: Entries[list[Annotated[int, Whole(1, MAX_RAILS)]]] = Field(
        default=[], description="Lists the rails that it has a NIC on; by default all."
    )


TargetsField = Section[dict[NodeName, Section[TargetSpec]]]
BackendTargetsField = Section[dict[NodeName, Section[BackendTargetSpec]]]


def find_taken_names(
    document: Document, section: Path, specs: Mapping[str, TargetSpec], nodes: Iterable[str]
) -> list[Problem]:
    """Targets whose names other `nodes` have, or other targets of the network that `section` describes."""
    seen = dict.fromkeys(nodes, "")
    problems = []
    for key, spec in specs.items():
        for name in _names(key, spec):
            if name in seen:
                whose = f", a target of {seen[name]}" if seen[name] else ""
                problems.append(
                    document.problem(
                        "name-taken",
                        (*section, "targets", key),
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
        TargetParams(
            name=name,
            target=spec.target(),
            rate=spec.rate,
            key=key,
            rails=tuple(dict.fromkeys(spec.rails)) if isinstance(spec, BackendTargetSpec) else (),
        )
        for key, spec in specs.items()
        for name in _names(key, spec)
    )
