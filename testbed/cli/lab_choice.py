"""Which topology and which lab a command is about."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import CapabilityError, LabNotFound, PlanError, TestbedError
from testbed.cli import output

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.model import Lab
    from testbed.lab.core.plan.lab_plan import LabPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLab:
    """A lab of a topology file as it would be deployed here now, for views that need nothing that runs."""

    model: Lab
    plan: LabPlan

    @property
    def name(self) -> str:
        return self.model.name

    def of_network(self, *names: str) -> DeclaredLab:
        """The lab seen in these networks alone."""
        return DeclaredLab(model=self.model.of_network(*names), plan=self.plan.of_network(*names))


def read_topology(topology: str | None, name: str | None, settings: Sequence[str] = (), *, warn: bool = False) -> Lab:
    """Read the topology of `-t`: a file, `-` for standard input, or the only topology file of this directory.

    With `warn`, what is valid and works less well than it looks is said on standard error.
    """
    from testbed.lab.core.schema.load import find_topology, load_topology, load_topology_text

    overrides = parse_settings(settings)
    if name is not None:
        overrides["name"] = name
    tell = output.warn if warn else None
    if topology == "-":
        return load_topology_text(sys.stdin.read(), file="<stdin>", overrides=overrides, warn=tell)
    path = Path(topology) if topology else find_topology(Path.cwd())
    return load_topology(path, overrides=overrides, warn=tell)


@contextmanager
def placed_plan_errors(topology: str | None, name: str | None, settings: Sequence[str] = ()) -> Iterator[None]:
    """Give a `PlanError` of the body its place in the topology file, where it is about a key that is written there."""
    from testbed.lab.core.schema.load import find_topology, place_plan_error

    try:
        yield
    except PlanError as error:
        if topology == "-":
            raise
        overrides = parse_settings(settings)
        if name is not None:
            overrides["name"] = name
        path = Path(topology) if topology else find_topology(Path.cwd())
        raise place_plan_error(path, error, overrides=overrides) from error


def parse_settings(settings: Sequence[str]) -> dict[str, object]:
    """Read what `--set fabric.hosts=4` says as dotted keys with YAML values. Raises `TestbedError` for other words."""
    from testbed.lab.core.schema.load import parse_assignment

    return dict(parse_assignment(setting) for setting in settings)


def open_lab(name: str | None, topology: str | None = None) -> RunningLab:
    """Open the lab that is named by -n or by the topology file, or the only one deployed.

    Raises `LabNotFound`, and `CapabilityError` without root.
    """
    require_sight("looking into a lab that runs")
    return _open_recorded(name, topology)


def _open_recorded(name: str | None, topology: str | None = None) -> RunningLab:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory

    state = StateDirectory()
    lab = RunningLab.open(lab_name(name, topology), state)
    if state.is_changing(lab.name):
        output.warn(
            f"{lab.name} is in the middle of a change, and this is about what it was before; unless somebody is at it,"
            f" `testbed apply -n {lab.name}` ends it"
        )
    return lab


def require_sight(what: str) -> None:
    """Raise `CapabilityError` without root, which sees no processes of labs and would take all of them for degraded."""
    if os.geteuid() != 0:
        from testbed.lab.core.deploy.records.state import needs_root

        raise needs_root(what)


def open_or_declare(name: str | None, topology: str | None) -> RunningLab | DeclaredLab:
    """The lab that `open_lab` would open; or, where the topology file's is not deployed, what deploying it would make.

    Raises `LabNotFound` where no file is named and no lab is meant.
    """
    from testbed.lab.core.deploy.lifecycle import preview
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.deploy.scale import resolve_scale

    if topology is None:
        return open_lab(name)
    lab = read_topology(topology, name)
    try:
        return _open_recorded(lab.name)
    except (LabNotFound, CapabilityError):
        state = StateDirectory()
        return DeclaredLab(model=lab, plan=preview(lab, state, resolve_scale(lab, state).k))


def lab_name(name: str | None, topology: str | None) -> str:
    """The name of the lab that `open_lab` would open. Raises `LabNotFound` where no name can be told."""
    from testbed.base.names import check_lab_name
    from testbed.lab.core.deploy.records.state import StateDirectory

    if name is not None:
        try:
            check_lab_name(name)
        except ValueError as error:
            raise LabNotFound(str(error)) from error
        return name
    if topology is not None:
        return read_topology(topology, None).name
    names = StateDirectory().names()
    if len(names) == 1:
        return names[0]
    if not names:
        raise LabNotFound("no lab is deployed", hint="testbed deploy -t TOPOLOGY.yml")
    raise LabNotFound(f"several labs are deployed: {', '.join(names)}", hint="choose one with -n NAME")


def check_network(lab: Lab, network: str | None) -> None:
    """Raise `TestbedError` for the name of a network that a lab does not have; None is all of them."""
    from testbed.base.names import known_names_hint

    if network is not None and network not in lab.network_names:
        hint = known_names_hint(network, lab.network_names)
        raise TestbedError(f"{lab.name} has no network {network!r}", hint=hint)
