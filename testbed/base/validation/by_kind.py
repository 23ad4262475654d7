"""Sections whose keys depend on their `kind`: one `SpecModel` for each kind, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from testbed.base.names import nearest
from testbed.base.validation.fields import Checked, OneOf
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.paths import quote

Models = Callable[[], Mapping[str, type[SpecModel]]]
"""Gives the model of each kind. It is called when one is first needed, because sections may nest."""


@dataclass(frozen=True, slots=True)
class KindReader:
    """Reads a section by the model of one kind. The models of all other kinds need not be made for that."""

    kind: str
    models: Models

    @property
    def model(self) -> type[SpecModel]:
        return self.models()[self.kind]

    def __call__(self, value: object) -> SpecModel:
        """Read a section. Raises pydantic's `ValidationError`, whose places are then below that of the section."""
        return self.model.model_validate(value)


@dataclass(frozen=True, slots=True)
class ByKind:
    """Annotation of a section that is read by the model of its `kind`.

    `models` has the model of each kind. A section without `kind` is of the kind `default`; where that is empty, it is
    refused. `example` is the hint for those who wrote no mapping. `name` reads a text that stands for a section written
    elsewhere; None: it has to stand here.
    """

    noun: str
    models: Models
    example: str
    default: str = ""
    name: Checked | None = None
    hints: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Hints for what is no kind here, and one elsewhere."""

    def choose(self, value: object) -> type[SpecModel]:
        """The model that a section is to be read by. Raises a refusal where it does not say so."""
        if not isinstance(value, dict):
            meant = None if isinstance(value, list | None) else nearest(str(value), self.models())
            hint = f"write {self.noun}: {{kind: {meant}}}" if meant else self.example
            raise refusal("wrong-type", f"must be a mapping of keys to values, not {quote(value)}", hint)
        models = self.models()
        if "kind" not in value:
            if self.default:
                return models[self.default]
            hint = f"add 'kind: ...', one of {', '.join(models)}"
            raise refusal("missing-key", "the key 'kind' is missing in this section", hint, key="kind")
        try:
            return models[str(OneOf(tuple(models), noun=self.noun, hints=self.hints).check(value["kind"]))]
        except PydanticCustomError as error:
            context = error.context or {}
            raise refusal(context["code"], context["message"], context["hint"], key="kind") from error

    def model_tagged(self, tag: object) -> type[SpecModel] | None:
        """The model that a place named in an error of pydantic stands for."""
        models = self.models()
        return next((models[kind] for kind in models if _tag(kind) == tag), None)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def chosen(value: Any) -> str:
            return _tag(value.get("kind", self.default))

        def read(value: object, read_union: core_schema.ValidatorFunctionWrapHandler) -> object:
            if self.name is not None and isinstance(value, str):
                return self.name.check(value)
            self.choose(value)
            return read_union(value)

        choices: dict[Hashable, CoreSchema] = {
            _tag(kind): core_schema.no_info_plain_validator_function(KindReader(kind, self.models))
            for kind in self.models()
        }
        union = core_schema.tagged_union_schema(choices, discriminator=chosen)
        return core_schema.no_info_wrap_validator_function(read, union)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        sections = handler(schema)["oneOf"]
        return {"oneOf": sections if self.name is None else [self.name.json_schema(), *sections]}


def _tag(kind: str) -> str:
    """Return how pydantic names a kind among the parts of a place."""
    return f"[kind={kind}]"
