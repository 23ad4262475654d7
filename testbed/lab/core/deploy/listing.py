"""The labs of this machine, a line each.

A line comes from the record, the journal and the processes that are there, as far as these say all of it. Making the
plan of a lab anew, which tells what else could be broken, takes longer than all else that `testbed list` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.base.errors import TestbedError
from testbed.base.names import namespace_name
from testbed.base.rows import if_known
from testbed.lab.core.deploy.records.files import LAB_SCHEMA
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.deploy.records.state import StateDirectory

if TYPE_CHECKING:
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedLab:
    """A line of the list of labs; it has only the name of a lab whose record cannot be read."""

    name: str
    state: str = "unknown"
    design: str | None = if_known()
    hosts: int | None = if_known()
    switches: int | None = if_known()
    links: int | None = if_known()
    k: float | None = if_known()
    created: str | None = if_known()
    topology: str | None = if_known()
    machines: str | None = if_known()
    """The machines that it is spread over."""


def listed_labs(state: StateDirectory) -> Iterator[ListedLab]:
    """Yield a line for each lab, in the order of their names."""
    for name in state.names():
        try:
            yield _from_records(name, state) or _from_whole_lab(name, state)
        except TestbedError:  # gone meanwhile, never completed, or another version's: `destroy` knows it
            yield ListedLab(name=name)


def recorded_daemons(
    lab: Lab, plan: LabPlan, daemons: Mapping[str, tuple[str, ...]]
) -> Mapping[str, tuple[str, ...]] | None:
    """Return the daemons of a lab's nodes by its record; None where more of it than daemons can be broken."""
    return None if plan.scale_up_domains or any(node.runtime != "netns" for node in lab.nodes) else daemons


def _from_records(name: str, state: StateDirectory) -> ListedLab | None:
    """None where only the lab as a whole knows: its record says no daemons, links of it were changed, or other machines
    have nodes of it."""
    document = state.salvage(name)
    daemons, directory = document.get("daemons"), state.lab_directory(name)
    if document.get("schema") != LAB_SCHEMA or daemons is None or (directory / "links.json").exists():
        return None
    if document.get("part") is not None:
        return None
    from testbed.base.linux import namespaces, processes

    journal = Journal(directory).read()
    running: dict[int, set[str]] = {}
    for process in processes.processes_in(set(journal.identities.values())):
        running.setdefault(process.identity, set()).add(process.command)
    whole = all(set(names) <= running.get(journal.identities.get(node, 0), set()) for node, names in daemons.items())
    names = [namespace_name(name, node["name"]) for node in document["model"]["nodes"]]
    life_cycle = journal.state.value if journal.state is not None else "unknown"
    running_whole = whole and len(namespaces.published(names)) == len(names)
    return _listed(document, life_cycle if running_whole else "degraded")


def _from_whole_lab(name: str, state: StateDirectory) -> ListedLab:
    """Raises `LabNotFound`, and `LabUnreadable` for a record of another version."""
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.feature import features

    lab = RunningLab.open(name, state)
    whole = {status.state for status in lab.status()} <= {"running"}
    whole = whole and not any(feature.broken(lab.plan, lab.processes_directory) for feature in features())
    life_cycle = lab.life_cycle.value if lab.life_cycle else "unknown"
    return _listed(lab.record.to_json(), life_cycle if whole else "degraded")


def _listed(record: Mapping[str, Any], state: str) -> ListedLab:
    """Make the line of a lab of its record, as JSON has it."""
    model = record["model"]
    kinds = [node["kind"] for node in model["nodes"]]
    return ListedLab(
        name=record["name"],
        state=state,
        design=model.get("design") or "hand-written",
        hosts=kinds.count("host"),
        switches=kinds.count("switch"),
        links=len(model["links"]),
        k=record["k"],
        created=record["created"],
        topology=record["source"],
    )
