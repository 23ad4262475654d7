"""`services:` of a network of management ports: which services it has, as a list or a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from testbed.base.errors import Problem
from testbed.base.names import nearest
from testbed.base.units import Duration
from testbed.base.validation.fields import OrShort, Quantity, Section, Written
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.model.management import SERVICES, ManagementService

_Interval = Annotated[Duration, Quantity(Duration, Duration.parse("1h"), Duration.parse("100ms"))]


class PlainServiceSpec(SpecModel):
    """A service of which there is nothing to say but that it is there."""


class TelemetrySpec(SpecModel):
    """`telemetry:` of services."""

    interval: Written[_Interval] = Field(
        default=None, description="Says how often counters are asked for; the default is every 5 s."
    )


OPTIONS: Mapping[str, type[SpecModel]] = MappingProxyType({"telemetry": TelemetrySpec})
"""The services of which a file may say something; others are `PlainServiceSpec`."""


class WantedServices(SpecModel):
    """`services: {ssh: {}, telemetry: {interval: 5s}}`: the services that are named, and no other."""

    def services(self) -> tuple[ManagementService, ...]:
        found = []
        for name in SERVICES:
            section = getattr(self, name)
            interval = section.interval if isinstance(section, TelemetrySpec) else None
            if section is not None:
                found.append(ManagementService(name=name, **({} if interval is None else {"interval": interval})))
        return tuple(found)


def _key(name: str) -> Any:
    """The key of a service: its type, and what is said of it."""
    kind = SERVICES[name]
    needed = f" Needs {', '.join(f'`{other}`' for other in kind.needs)}." if kind.needs else ""
    section = Section[OPTIONS.get(name, PlainServiceSpec) | None]  # type: ignore[misc, valid-type]  # of a table
    return section, Field(default=None, description=kind.description + needed)


if TYPE_CHECKING:
    ServicesSpec = WantedServices
else:
    ServicesSpec = create_model(
        "ServicesSpec",
        __base__=WantedServices,
        __doc__=WantedServices.__doc__,
        **{name: _key(name) for name in SERVICES},
    )


class _Named(OrShort):
    """A mapping, or a list of names, which are looked at when the network is made (`service_problems`)."""

    model = ServicesSpec

    def read(self, value: object) -> object:
        if not isinstance(value, list):
            raise PydanticCustomError("model_type", "must be a mapping")
        if not all(isinstance(name, str) for name in value):
            raise refusal("wrong-type", "must be a list of services or a mapping of them", "services: [ssh, dns]")
        return {name: {} for name in value if name in SERVICES}

    def short_schema(self) -> list[JsonSchemaValue]:
        return [{"type": "array", "items": {"enum": list(SERVICES)}, "uniqueItems": True}]


ServicesField = Annotated[ServicesSpec | None, _Named()]


def service_problems(document: Document, path: Path) -> list[Problem]:
    """Find what is wrong with the services at `path`: names that there are not, or twice, or that lack another one."""
    found = document.get(path) if document.has(path) else None
    names: list[object] = found if isinstance(found, list) else []
    problems = []
    for number, name in enumerate(names):
        if name not in SERVICES:
            meant = nearest(str(name), SERVICES)
            hint = f"did you mean {meant}?" if meant else f"known are {', '.join(SERVICES)}"
            problems.append(
                document.problem("unknown-service", (*path, number), f"there is no service {quote(name)}", hint=hint)
            )
        elif name in names[:number]:
            problems.append(document.problem("duplicate-service", (*path, number), f"{name} is there already"))
    places: Iterable[tuple[object, Path]] = [(name, (*path, number)) for number, name in enumerate(names)]
    if isinstance(found, dict):
        places = [(name, (*path, name)) for name in found]
    wanted = {name for name, _ in places}
    for name, place in places:
        for other in SERVICES[str(name)].needs if name in SERVICES else ():
            if other not in wanted:
                message = f"{name} is nothing without the service {other}"
                problems.append(document.problem("missing-service", place, message, hint=f"add {other} to services"))
    return problems
