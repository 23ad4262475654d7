"""Commands in files: as text, or as a list of arguments; never run by a shell."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated

from pydantic.json_schema import JsonSchemaValue

from testbed.base.validation.fields import Checked
from testbed.base.validation.model import refusal
from testbed.base.yaml.paths import quote


@dataclass(frozen=True, slots=True)
class _Command(Checked):
    """A command as text, split like a shell does but run without one, or as a list of arguments."""

    def check(self, value: object) -> tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(argument, str) for argument in value):
            arguments = tuple(value)
        elif isinstance(value, str):
            try:
                arguments = tuple(shlex.split(value))
            except ValueError as error:
                raise refusal("bad-command", f"{quote(value)}: {str(error).lower()}", "close the quotes") from error
        else:
            raise refusal("bad-command", f"must be a command such as 'ip route', not {quote(value)}")
        if not arguments or not arguments[0]:
            raise refusal("bad-command", "the command is empty", "remove it or write a command such as 'ip route'")
        return arguments

    def json_schema(self) -> JsonSchemaValue:
        return {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }


CommandField = Annotated[tuple[str, ...], _Command()]
