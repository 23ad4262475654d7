"""A section of a file as a class, and how the type of a key refuses a value: with these all keys are declared.

A section is a class derived from `SpecModel`; a key is a field of it, with a type that checks one value (`fields`,
`quantities`), a default, and a description. A description is one whole sentence whose subject is the key, so it begins
with a verb: "Names the lab." Messages, the JSON Schema and the reference of the documentation are made from it.
Sections whose keys depend on their `kind` (`by_kind`) have a class for each kind, made from what a registry declares
(`declared`); those that become a data class field by field are made from its keys (`sections`, `testbed.base.keys`).
`engine.validate_model` is the one reader of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from testbed.base.yaml.document import Document
    from testbed.base.yaml.paths import Path


class SpecModel(BaseModel):
    """A mapping of a file as it is written. Unknown keys are errors.

    `LATER` names keys that will mean something one day, with the reason for refusing them today; `ELSEWHERE` those that
    belong into another section or kind of section, or into files of another tool, with a hint that says what to write,
    or such a hint for each value.
    """

    # built when it is first read by: sections that stand in others are built with those alone
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=(), defer_build=True)
    LATER: ClassVar[Mapping[str, str]] = {}
    ELSEWHERE: ClassVar[Mapping[str, str | Mapping[str, str]]] = {}


def refusal(
    code: str, message: str, hint: str | Callable[[Document, Path], str | None] | None = None, *, key: str = ""
) -> PydanticCustomError:
    """The exception by which a field's type refuses a value, naming the code of the problem.

    `hint` may be what makes one for the value's place in its file, where it depends on other values there. `key`: the
    problem is with this key of the value, which is a mapping, rather than with the whole of it.
    """
    context = {"code": code, "message": message, "hint": hint or "", "key": key}
    return PydanticCustomError("refusal", "{message}", context)
