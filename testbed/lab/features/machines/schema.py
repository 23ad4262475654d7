"""`machines:` of a topology: the machines that the lab is spread over, and which nodes each is to have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import Problem
from testbed.base.names import MAX_INTERFACE_NAME, known_names_hint
from testbed.base.validation.fields import Checked, Entries, ShortText, Whole, Written
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import quote
from testbed.lab.core.model import Lab
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.features.machines.places import MOST_MACHINES, NotSpread, place_nodes, require_cuttable

MOST_WEIGHT = 1000
_FORM = "[user@]host[:port][/directory]"


@dataclass(frozen=True, slots=True)
class _Reached(Checked):
    """A machine that SSH reaches. It becomes no option of a program, whatever it is."""

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not value or value.startswith(("-", "ssh:")) or not value.isprintable():
            raise refusal("bad-machine", f"{quote(value)} is no machine", f"{_FORM}, such as root@lab1")
        if any(character.isspace() for character in value):
            raise refusal("bad-machine", f"{quote(value)} is no machine: there is a space in it", _FORM)
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "minLength": 1}


class MachineSpec(SpecModel):
    """An entry of `machines:`."""

    ssh: Annotated[str, _Reached()] = Field(description=f"Names a machine with a checkout: {_FORM}.")
    underlay: Written[ShortText] = Field(
        default=None, description="Names the interface that the other machines reach it by; by default the one of SSH."
    )
    weight: Written[Annotated[int, Whole(1, MOST_WEIGHT)]] = Field(
        default=None, description="Says how much it gets of what the file gives to no machine; the default is 1."
    )
    nodes: Entries[list[ShortText]] = Field(
        default=[], description='Lists patterns of the names of nodes that it has, such as "p1-*".'
    )


def resolve_machines(
    document: Document, specs: Mapping[str, MachineSpec], lab: Lab
) -> tuple[tuple[LabMachine, ...], list[Problem]]:
    """Return the machines of a file for the lab that the rest of it describes, and what is wrong with them."""
    machines = tuple(
        LabMachine(
            name=name,
            ssh=spec.ssh,
            underlay=spec.underlay or "",
            weight=spec.weight or 1,
            nodes=tuple(spec.nodes),
        )
        for name, spec in specs.items()
    )
    problems = list(_problems(document, specs, lab))
    if machines and not problems:
        try:
            require_cuttable(lab)
            place_nodes(lab, machines)
        except NotSpread as error:
            problems.append(document.problem("not-spread", ("machines",), error.message, hint=error.hint, key=True))
    return machines, problems


def _problems(document: Document, specs: Mapping[str, MachineSpec], lab: Lab) -> Iterator[Problem]:
    names = [node.name for node in lab.nodes]
    if specs and not 2 <= len(specs) <= MOST_MACHINES:
        message = f"a lab is spread over 2 to {MOST_MACHINES} machines, not over {len(specs)}"
        yield document.problem("out-of-range", ("machines",), message, hint="deploy --on names a single one", key=True)
    reached: set[str] = set()
    for name, spec in specs.items():
        if spec.ssh in reached:
            message, once = f"{quote(spec.ssh)} is named twice", "name each machine once"
            yield document.problem("duplicate-machine", ("machines", name, "ssh"), message, hint=once)
        reached.add(spec.ssh)
        if spec.underlay is not None and not 0 < len(spec.underlay) <= MAX_INTERFACE_NAME:
            message = f"{quote(spec.underlay)} is no name of an interface"
            yield document.problem("bad-name", ("machines", name, "underlay"), message, hint="underlay: eth1")
        for number, pattern in enumerate(spec.nodes):
            if not any(fnmatchcase(node, pattern) for node in names):
                message = f"no node is called {quote(pattern)}"
                hint = known_names_hint(pattern, names)
                yield document.problem("unknown-node", ("machines", name, "nodes", number), message, hint=hint)
