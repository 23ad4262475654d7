"""`services:` of a network of management ports: which services it has, as a list or a mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.errors import Problem
from testbed.model.services import SERVICES, ManagementService
from testbed.names import nearest
from testbed.spec.validation.fields import Quantity, Section, Written
from testbed.spec.validation.model import SpecModel, refusal
from testbed.spec.yaml.document import Document
from testbed.spec.yaml.paths import Path, quote
from testbed.units import Duration

_Interval = Annotated[Duration, Quantity(Duration, Duration.parse("1h"), Duration.parse("100ms"))]


class PlainServiceSpec(SpecModel):
    """A service of which there is nothing to say but that it is there."""


class TelemetrySpec(SpecModel):
    """`telemetry:` of services."""

    interval: Written[_Interval] = Field(
        default=None, description="Says how often counters are asked for; the default is every second."
    )


_Plain = Section[PlainServiceSpec | None]


class ServicesSpec(SpecModel):
    """`services: {ssh: {}, telemetry: {interval: 5s}}`: the services that are named, and no other."""

    ssh: _Plain = Field(default=None, description="Has sshd on every node, which lets in who has the lab's key.")
    dns: _Plain = Field(default=None, description="Has dnsmasq on the server answer with the addresses of all nodes.")
    dhcp: _Plain = Field(default=None, description="Has dnsmasq on the server lease each node its address, by its MAC.")
    time: _Plain = Field(default=None, description="Has chronyd on every node follow the one on the server by NTP.")
    syslog: _Plain = Field(default=None, description="Has rsyslogd on the server collect the logs of every node.")
    telemetry: Section[TelemetrySpec | None] = Field(
        default=None, description="Has Prometheus on the server ask for the counters of every node."
    )
    redfish: _Plain = Field(
        default=None, description="Has a BMC on the server switch the power of hosts and switches (sushy-tools)."
    )
    lldp: _Plain = Field(default=None, description="Has lldpd on every node tell its neighbours who it is.")

    bmp: _Plain = Field(
        default=None, description="Has pmbmpd on the server collect what every switch reports of BGP (RFC 7854)."
    )
    aaa: _Plain = Field(
        default=None, description="Has freeradius on the server decide who may log in to switches; needs `ssh`."
    )

    def services(self) -> tuple[ManagementService, ...]:
        found = []
        for name in SERVICES:
            section = getattr(self, name)
            interval = section.interval if isinstance(section, TelemetrySpec) else None
            if section is not None:
                found.append(ManagementService(name=name, **({} if interval is None else {"interval": interval})))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Named:
    """A mapping, or a list of names, which are looked at when the network is made (`service_problems`)."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, read_mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
            if not isinstance(value, list):
                return read_mapping(value)
            if not all(isinstance(name, str) for name in value):
                raise refusal("wrong-type", "must be a list of services or a mapping of them", "services: [ssh, dns]")
            return read_mapping({name: {} for name in value if name in SERVICES})

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(ServicesSpec))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        names = {"type": "array", "items": {"enum": list(SERVICES)}, "uniqueItems": True}
        return {"anyOf": [names, handler(schema)]}


ServicesField = Annotated[ServicesSpec | None, _Named()]


def service_problems(document: Document, path: Path) -> list[Problem]:
    """What is wrong with the list of services at `path`, where it is one: names that there are not, or twice."""
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
    return problems
