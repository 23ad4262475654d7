"""`services:` of a network of management ports: which services it has, as a list or a mapping."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from testbed.base.errors import Problem
from testbed.base.names import choice_hint
from testbed.base.units import Duration
from testbed.base.validation.fields import Checked, OrShort, Quantity, Section, Whole, Written
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.model.management import SERVICES, ManagementService, SflowSettings

_Interval = Annotated[Duration, Quantity(Duration, Duration.parse("1h"), Duration.parse("100ms"))]
_Polling = Annotated[Duration, Quantity(Duration, Duration.parse("1h"), Duration.parse("1s"))]
_COLLECTOR = r"(\d{1,3}(?:\.\d{1,3}){3})(?::(\d{1,5}))?"


@dataclass(frozen=True, slots=True)
class CollectorAddress(Checked):
    """An IPv4 address, with a UDP port behind it or none: (address, port or None)."""

    def check(self, value: object) -> tuple[IPv4Address, int | None]:
        match = re.fullmatch(_COLLECTOR, value) if isinstance(value, str) else None
        try:
            address = IPv4Address(match[1] if match is not None else "")
        except AddressValueError as error:
            message = f"must be an IPv4 address, with a port or without, not {quote(value)}"
            raise refusal("wrong-type", message, "127.0.0.1:6343, a collector on this machine") from error
        port = int(match[2]) if match is not None and match[2] is not None else None
        if address.is_multicast or address.is_unspecified or port == 0 or (port or 0) > 65_535:
            raise refusal(
                "out-of-range", f"nobody can listen at {quote(value)}", "name a host's address and a UDP port"
            )
        return address, port

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": f"^{_COLLECTOR}$", "examples": ["192.168.0.1:6343"]}


_Collector = Annotated[tuple[IPv4Address, int | None], CollectorAddress()]


class PlainServiceSpec(SpecModel):
    """A service of which there is nothing to say but that it is there."""

    def settings(self) -> dict[str, Any]:
        """Return the fields of `ManagementService` that the file says."""
        return {}


class TelemetrySpec(PlainServiceSpec):
    """`telemetry:` of services."""

    interval: Written[_Interval] = Field(
        default=None, description="Says how often counters are asked for; the default is every 5 s."
    )

    def settings(self) -> dict[str, Any]:
        return {} if self.interval is None else {"interval": self.interval}


class SflowSpec(PlainServiceSpec):
    """`sflow:` of services."""

    collector: Written[_Collector] = Field(
        default=None,
        description="Gives the collector as ADDRESS or ADDRESS:PORT; the default is the server, port 6343. An address"
        " of loopback is this machine's.",
    )
    sampling: Written[Annotated[int, Whole(1, 1 << 24)]] = Field(
        default=None, description="Samples one packet in so many at each port; the default is 400."
    )
    polling: Written[_Polling] = Field(
        default=None, description="Says how often the counters of each port are sent; the default is every 10 s."
    )

    def settings(self) -> dict[str, Any]:
        address, port = self.collector if self.collector is not None else (None, None)
        said: dict[str, Any] = {"collector": address, "port": port, "sampling": self.sampling, "polling": self.polling}
        return {"sflow": SflowSettings(**{name: value for name, value in said.items() if value is not None})}


OPTIONS: Mapping[str, type[PlainServiceSpec]] = MappingProxyType({"telemetry": TelemetrySpec, "sflow": SflowSpec})
"""The services of which a file may say something; others are `PlainServiceSpec`."""


class WantedServices(SpecModel):
    """`services: {ssh: {}, telemetry: {interval: 5s}}`: the services that are named, and no other."""

    def services(self) -> tuple[ManagementService, ...]:
        found = []
        for name in SERVICES:
            section = getattr(self, name)
            if section is not None:
                found.append(ManagementService(name=name, **section.settings()))
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
            hint = choice_hint(str(name), SERVICES, f"known are {', '.join(SERVICES)}")
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
