"""The facts of a machine by which the machines of a pool are compared, and how they differ.

Every machine is asked before anything runs: the station there (`testbed.api.pool.station`) says them as JSON.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from pydantic import TypeAdapter, ValidationError

from testbed.base.compiled.modules import build_key
from testbed.base.errors import TestbedError
from testbed.base.files import CHECKOUT
from testbed.record.record import Environment
from testbed.run.machine.environment import collect_environment

ENGINE = "distributed"
"""The package that must be on each machine, in one version."""
ABOUT = b"about "
"""The begin of the line that says the facts."""
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutMachine:
    """The facts of a machine. `cores` are those that a process there may use."""

    environment: Environment
    build: str
    """The key of the build of its transports, which their sources and its Python make."""
    sources: str
    """The digest of all modules of testbed there: many that have a say in a figure are in no build."""
    engine: str
    """Version of Dask distributed; "" where it is not installed."""
    cores: int
    root: bool
    can_deploy: bool
    """Labs can be deployed there; False where nobody has looked."""
    lacks: list[str] = field(default_factory=list)
    """The features that labs need and that it lacks."""
    packet_us: dict[str, float] = field(default_factory=dict)
    """CPU time of a data packet in us, by transport, as far as it was measured."""

    @property
    def kind(self) -> tuple[str | None, int, str]:
        """Return what two machines must have in common for their times to be divided by each other."""
        return self.environment.cpu_model, self.cores, self.environment.kernel


@cache
def _adapter() -> TypeAdapter[AboutMachine]:
    return TypeAdapter(AboutMachine)


def about_this_machine(*, probed: bool) -> AboutMachine:
    """Ask this machine. What labs need is looked at where it is to be `probed`, which takes a second or two."""
    about = AboutMachine(
        environment=collect_environment([]),
        build=build_key(),
        sources=_digest_of_sources(),
        engine=_engine(),
        cores=len(os.sched_getaffinity(0)),
        root=os.geteuid() == 0,
        can_deploy=False,
    )
    return _with_labs(about) if probed else about


def _with_labs(about: AboutMachine) -> AboutMachine:
    """Add what a machine has for labs, and lacks."""
    from testbed.lab.core.deploy.packet_costs import PacketCosts  # runs that are simulated need none of these
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.core.drivers.probing.doctor import probe_machine
    from testbed.lab.core.drivers.probing.status import Status

    report = probe_machine(keep=about.root)
    return replace(
        about,
        can_deploy=report.can_deploy,
        lacks=[feature.name for feature in report.features if feature.required and feature.status is Status.MISSING],
        packet_us={cost.transport: cost.us for cost in PacketCosts(StateDirectory()).all()},
    )


def encode_about(about: AboutMachine) -> bytes:
    """Return the facts as JSON, in one line."""
    return _adapter().dump_json(about) + b"\n"


def decode_about(content: bytes, name: str) -> AboutMachine:
    """Read what a machine says of itself, with suspicion. Raises `TestbedError`."""
    if len(content) > MAX_BYTES:
        raise TestbedError(f"{name} says more of itself than anybody would: {len(content)} bytes")
    try:
        return _adapter().validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise TestbedError(
            f"{name} does not say what it is: {where}: {first['msg']}", hint="has it another version of testbed?"
        ) from error


def differences(own: AboutMachine, other: AboutMachine) -> list[str]:
    """Return in which ways another machine would not do the same as this one does, in words."""
    ours, theirs = own.environment, other.environment
    found = [
        f"{what} {there or 'none'}, and here {here or 'none'}"
        for what, here, there in (
            ("testbed", ours.testbed, theirs.testbed),
            ("Python", ours.python, theirs.python),
            ("Dask distributed", own.engine, other.engine),
            ("transports", ours.transports, theirs.transports),
            ("clock", ours.clock, theirs.clock),
        )
        if here != there
    ]
    if own.build != other.build and not any(word.startswith(("testbed", "Python")) for word in found):
        found.append("other sources of the transports than here")
    elif own.sources != other.sources and not found:
        found.append("other sources of testbed than here")
    if theirs.interpreted:
        found.append(f"{len(theirs.interpreted)} modules that were changed since they were compiled")
    return found


def kinds_of(machines: Mapping[str, AboutMachine]) -> list[Sequence[str]]:
    """Return the names of the machines by kind, those of the largest kind first."""
    kinds: dict[tuple[str | None, int, str], list[str]] = {}
    for name, about in machines.items():
        kinds.setdefault(about.kind, []).append(name)
    return sorted(kinds.values(), key=len, reverse=True)


@cache
def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    walked = ((os.path.relpath(directory, CHECKOUT), files) for directory, _, files in os.walk(CHECKOUT / "testbed"))
    for path in sorted(f"{inside}/{name}" for inside, files in walked for name in files if name.endswith(".py")):
        digest.update(f"{path}\0".encode() + (CHECKOUT / path).read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def _engine() -> str:
    try:
        return version(ENGINE)
    except PackageNotFoundError:
        return ""
