"""The machines of a pool, as `--pool` names them: a file, `pool.yml`, or targets with commas between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated

from pydantic import Field

from testbed.base.errors import Problem, SpecError, TestbedError
from testbed.base.validation.engine import ready_to_show, validate_model
from testbed.base.validation.fields import Entries, Flag, Length, ShortText, Whole, Written
from testbed.base.validation.model import SpecModel
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import quote
from testbed.base.yaml.reader import read_document
from testbed.vm.remote.target import RemoteTarget, parse_target

HERE = "here"
MOST_MACHINES, MOST_SEATS = 250, 1024
"""The most machines of a pool, and the most runs that one simulates at once."""
_ONE_OF = ("ssh", "vm", HERE)
_ARRAYS = (
    "jobs of a cluster run single points: `testbed run --point` in an array of jobs, and then `testbed results merge`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMachine:
    """A machine of a pool. `target` is where it is, None for this one.

    `simulation` is the number of runs that it simulates at once, None for as many as it has cores; `emulation` whether
    it emulates, None where it does so as root alone.
    """

    name: str
    target: RemoteTarget | None = None
    simulation: int | None = None
    emulation: bool | None = None


class PoolMachineSpec(SpecModel):
    """A machine: where it is, and how many runs it does at once."""

    ssh: Written[ShortText] = Field(
        default=None, description="Names a machine with a checkout: [user@]host[:port][/directory]."
    )
    vm: Written[ShortText] = Field(default=None, description="Names a lab VM that is up, such as vm.")
    here: Flag = Field(default=False, description="Says whether it is this machine itself.")
    simulation: Written[Annotated[int, Whole(0, MOST_SEATS)]] = Field(
        default=None, description="Says how many runs it simulates at once; as many as it has cores by default."
    )
    emulation: Written[Annotated[int, Whole(0, 1, why_high="one lab is measured on a machine at a time")]] = Field(
        default=None, description="Says whether it emulates (1) or not (0); it does where it is root by default."
    )


class PoolSpec(SpecModel):
    """A pool of machines."""

    LATER = {"slurm": _ARRAYS, "kubernetes": _ARRAYS}  # noqa: RUF012  # a ClassVar of the base

    machines: Annotated[Entries[list[PoolMachineSpec]], Length(1, MOST_MACHINES)] = Field(
        description="Lists the machines."
    )


def read_pool(text: str) -> tuple[PoolMachine, ...]:
    """Return the machines of a pool: of a file, or of targets such as `ssh://root@a,ssh://root@b,here`.

    Raises `SpecError` with every problem of the file, and `TestbedError` for what is no target.
    """
    if text.strip() in ("", HERE, "vm") or text.startswith(("ssh://", "vm:")) or "," in text:
        machines = tuple(_machine_of(word.strip()) for word in text.split(","))
        for name, times in Counter(machine.name for machine in machines).items():
            if times > 1:
                raise TestbedError(f"--pool {text}: {name} is named {times} times", hint="name each machine once")
        return machines
    if "@" in text and not FilePath(text).exists():
        raise TestbedError(f"--pool {text}: there is no such file", hint=f"ssh://{text} is a machine")
    begin = "begin with 'machines:', and have a line for each, such as - {ssh: root@lab1}"
    return resolve_pool(read_document(FilePath(text), begin=begin))


def resolve_pool(document: Document) -> tuple[PoolMachine, ...]:
    """Return the machines of a document. Raises `SpecError`."""
    spec = validate_model(PoolSpec, document)
    problems = list(_not_one_place(document, spec.machines))
    machines: list[PoolMachine] = []
    for number, one in enumerate(spec.machines):
        try:
            target = None if one.here else parse_target(f"ssh://{one.ssh}" if one.ssh else f"vm:{one.vm or ''}")
        except TestbedError:
            message = f"{quote(one.ssh)} is no machine"
            hint = "[user@]host[:port][/directory]"
            problems.append(document.problem("bad-machine", ("machines", number, "ssh"), message, hint=hint))
            continue
        emulation = None if one.emulation is None else bool(one.emulation)
        machines.append(PoolMachine(name=_name(target), target=target, simulation=one.simulation, emulation=emulation))
    if not problems:
        problems += _twice(document, machines)
    if problems:
        raise SpecError(ready_to_show(problems))
    return tuple(machines)


def _machine_of(word: str) -> PoolMachine:
    try:
        target = None if word == HERE else parse_target(word)
    except TestbedError as error:
        hint = "a file, or targets: --pool pool.yml, --pool ssh://root@a,ssh://root@b"
        raise TestbedError(f"--pool: {word or 'nothing'} is no machine", hint=hint) from error
    return PoolMachine(name=_name(target), target=target)


def _name(target: RemoteTarget | None) -> str:
    """Return what records and messages call a machine: its host, or `here`."""
    if target is None:
        return HERE
    if target.login is None:
        return str(target)
    return target.login.host if target.login.port == 22 else f"{target.login.host}:{target.login.port}"


def _not_one_place(document: Document, machines: Sequence[PoolMachineSpec]) -> Iterator[Problem]:
    """Yield the machines that are at no place, or at several."""
    for number, one in enumerate(machines):
        said = [key for key in _ONE_OF if getattr(one, key)]
        if not said:
            hint = "ssh: root@lab1, vm: vm, or here: true"
            yield document.problem("missing-key", ("machines", number), "the machine is nowhere", hint=hint, key=True)
        elif len(said) > 1:
            message = f"both {said[0]} and {said[1]} are given"
            yield document.problem("contradiction", ("machines", number, said[1]), message, hint="keep one", key=True)


def _twice(document: Document, machines: Sequence[PoolMachine]) -> Iterator[Problem]:
    """Yield the machines that have been named before: their seats would be counted twice."""
    seen: set[str] = set()
    for number, machine in enumerate(machines):
        if machine.name in seen:
            message = f"{machine.name} is named twice"
            yield document.problem("duplicate-machine", ("machines", number), message, hint="name each machine once")
        seen.add(machine.name)
