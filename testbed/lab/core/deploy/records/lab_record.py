"""The record of a deployed lab, `lab.json`: what it says, and how one that another version wrote is read.

A record carries the number of its schema. One of a newer schema, and one that is not what its schema says, is refused
with an error that names the way out; whoever goes through all labs of the machine passes over it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from testbed.base.errors import LabNotFound
from testbed.lab.core.deploy.records.files import LAB_SCHEMA
from testbed.lab.core.model import DelayBy, Lab, LagBy, VrfBy
from testbed.lab.core.model.written import WrittenLab
from testbed.lab.core.plan.stable import DEFAULT_REACTION_NS, SLOTS

ABOUT_THE_FILE = ("source", "written")
"""The keys that an encoded lab has of the file that said it, and not of the lab."""
STATE_DIGITS = 12
"""The digits of a lab's state that are kept: enough to tell those apart that people ever have."""


class LabUnreadable(LabNotFound):
    """A lab is recorded here, but another version wrote its record, or it is damaged: only `destroy` knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRecord:
    """The content of `lab.json`. `model` is the encoded `Lab`; `k` the time scale it runs at; `frr` the version
    of FRR whose daemons were started, "" if none were; `delay_by` what `delay: {by: auto}` means in it, "" without
    delays; `vrf_by` what `vrf_by: auto` does, "" without an overlay; `lag_by` what `lag_by: auto` does, "" without link
    groups; `reaction_ns` the pause reaction that headrooms are planned for; `runtime` what it was deployed as;
    `daemons` what each node runs, None where more than these can be broken; `environment` what features add to that of
    commands, by node, None where the record of an earlier version does not say; `numbers` those of the data path where
    a change of the lab has kept them (`plan.qos.numbers`), None where they are the plan's own; `written` has the fields
    of `WrittenLab`, None for a lab that is from no file; `revision` counts the states that the lab has had, the first
    of which was deployed, and `changed` is when it got this one, "" for the first; `part` says which nodes are here
    where other machines have the rest (`feature.Part`), None for a lab that is here as a whole."""

    name: str
    slot: int
    k: float
    version: str
    created: str
    source: str
    directory: str
    model: Mapping[str, Any]
    frr: str = ""
    delay_by: str = ""
    vrf_by: str = ""
    lag_by: str = ""
    reaction_ns: int = DEFAULT_REACTION_NS
    runtime: str = "netns"
    daemons: Mapping[str, tuple[str, ...]] | None = None
    environment: Mapping[str, Mapping[str, str]] | None = None
    numbers: Mapping[str, Mapping[str, int]] | None = None
    written: Mapping[str, str] | None = None
    revision: int = 1
    changed: str = ""
    part: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for what no version of this schema writes."""
        if not 0 <= self.slot < SLOTS:
            raise ValueError(f"slot is {self.slot}")
        if not self.k > 0:
            raise ValueError(f"k is {self.k}")
        if self.revision < 1:
            raise ValueError(f"revision is {self.revision}")
        for word, known in ((self.delay_by, DelayBy), (self.vrf_by, VrfBy), (self.lag_by, LagBy)):
            if word:
                known(word)

    def to_json(self) -> dict[str, Any]:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"schema": LAB_SCHEMA} | {name: value for name, value in values.items() if value is not None}


def say_the_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two encoded labs are the same lab, though they may come from different files."""
    return _of_the_lab(one) == _of_the_lab(other)


def state_of(model: Mapping[str, Any]) -> str:
    """Return a digest of an encoded lab: the same for all files, wherever they lie, that say the same of it."""
    import hashlib

    return hashlib.sha256(json.dumps(_of_the_lab(model), sort_keys=True).encode()).hexdigest()[:STATE_DIGITS]


def _of_the_lab(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name not in ABOUT_THE_FILE}


def encode_lab(lab: Lab) -> dict[str, Any]:
    """JSON-ready data from which `decode_lab` rebuilds an equal `Lab`; what its file said is not in it, nor on which
    machines it is."""
    from testbed.base.typed_json import encode

    data: dict[str, Any] = json.loads(encode(lab))
    del data["written"], data["machines"]
    return data


def encode_written(lab: Lab) -> dict[str, str] | None:
    """JSON-ready data of what the file of a lab said, for its record."""
    return None if lab.written is None else asdict(lab.written)


def written_of(record: LabRecord) -> WrittenLab | None:
    """Return what the file of a lab said when it was deployed or changed; None where the record does not know."""
    try:
        return None if record.written is None else WrittenLab(**record.written)
    except TypeError:  # another version's
        return None


def decode_lab(data: Mapping[str, Any]) -> Lab:
    """The lab that `encode_lab` wrote; fields of another version are passed over. Raises `ValueError` for others."""
    import msgspec

    from testbed.base.typed_json import from_text

    return msgspec.convert(data, Lab, dec_hook=from_text)


def parse_record(content: str, lab: str) -> LabRecord:
    """The record of the lab `lab` from its file's content. Raises `LabUnreadable`."""
    import msgspec

    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(lab, str(error)) from error
    if not isinstance(document, dict):
        raise _damaged(lab, "it is no record of a lab")
    schema = document.get("schema")
    if type(schema) is not int or schema < 1:
        raise _damaged(lab, "it has no schema number")
    if schema > LAB_SCHEMA:
        raise LabUnreadable(
            f"the lab {lab} was deployed by testbed {document.get('version')}, whose records have schema {schema}; "
            f"this version reads up to {LAB_SCHEMA}",
            hint=f"use that version, or: testbed destroy -n {lab}",
        )
    try:
        record = msgspec.convert(document, LabRecord)
    except msgspec.ValidationError as error:
        raise _damaged(lab, str(error)) from error
    if record.name != lab:
        raise _damaged(lab, f"name is {record.name[:60]!r}")
    return record


def _damaged(lab: str, why: str) -> LabUnreadable:
    return LabUnreadable(
        f"the record of the lab {lab} (lab.json) is damaged or of another version: {why}",
        hint=f"testbed destroy -n {lab}",
    )
