"""The section `probes:` of a scenario: small packets beside the traffic, which tell what was lost, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from testbed.model.scenario import Probes
from testbed.spec.fields import Whole, Written
from testbed.spec.paths import quote
from testbed.spec.validation import SpecModel, refusal

FASTEST_PPS = 1000
MOST_PORTS = 64


class ProbesSpec(SpecModel):
    """`probes: {rate: 50, ports: 4}`."""

    rate: Written[Annotated[int, Whole(1, FASTEST_PPS)]] = Field(
        default=None, description="packets a second of each stream, in lab time; default: at most 20"
    )
    ports: Written[Annotated[int, Whole(1, MOST_PORTS)]] = Field(
        default=None, description="streams of each pair, with source ports of their own; default: up to 8"
    )


@dataclass(frozen=True, slots=True)
class _OrWord:
    """A mapping, or one of the words "auto" and "off"."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, read_mapping: core_schema.ValidatorFunctionWrapHandler) -> object:
            if isinstance(value, dict):
                return read_mapping(value)
            if value in ("auto", "off"):
                return value
            hint = (
                "auto, or nothing at all, sends those that a scenario needs"
                if value in ("on", True)
                else "write off"
                if value is False
                else None
            )
            raise refusal(
                "unknown-value", f"must be auto, off or a mapping with rate or ports, not {quote(value)}", hint
            )

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(ProbesSpec))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": ["auto", "off"]}, handler(schema)]}


ProbesField = Annotated[ProbesSpec | str, _OrWord()]


def resolve_probes(spec: ProbesSpec | str) -> Probes:
    match spec:
        case ProbesSpec():
            return Probes(rate_pps=spec.rate, ports=spec.ports)
        case word:
            return Probes(enabled=word != "off")
