"""The keys that say how a node is realised: `runtime: docker` and those of a container, in containerlab's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from pydantic.json_schema import JsonSchemaValue

from testbed.base.names import choice_hint
from testbed.base.units import BYTES, NUMBER, ByteCount, Duration
from testbed.base.validation.fields import (
    Checked,
    CommandField,
    DurationField,
    Entries,
    Number,
    OneOf,
    Section,
    Whole,
    Written,
    read_quantity,
)
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.paths import Path, quote
from testbed.lab.core.model import NETNS, NodeKind
from testbed.lab.core.model.containers import (
    CONTAINER_KEYS,
    CONTAINER_RUNTIMES,
    HOST_IMAGE,
    SWITCH_IMAGE,
    Bind,
    Container,
    HealthCheck,
)

RUNTIMES = (NETNS, *CONTAINER_RUNTIMES)
_CONTAINERS = " or ".join(f"{one.description} ({one.name})" for one in CONTAINER_RUNTIMES.values())

_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:(?:[._-]|__)[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_SMALLEST_MEMORY = 6 << 20
"""Docker's own lower bound."""
_LARGEST_MEMORY = 1 << 44
# fmt: off
CAPABILITIES = (
    "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN",
    "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE",
    "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST",
    "NET_RAW", "PERFMON", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT",
    "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG",
    "WAKE_ALARM",
)
# fmt: on
"""capabilities(7), as Docker names them."""


@dataclass(frozen=True, slots=True)
class _Image(Checked):
    """The reference of an image: `alpine:3.20`, `registry.example/frr@sha256:...`."""

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise refusal("wrong-type", f"must be an image such as alpine:3.20, not {quote(value)}", "put it in quotes")
        if len(value) > 300 or not _IMAGE.fullmatch(value):
            hint = "names of images are in lower case" if value != value.lower() else None
            raise refusal("bad-image", f"{quote(value)} cannot name an image, as alpine:3.20 does", hint)
        return value

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class _Bind(Checked):
    """`/on/this/machine:/in/the/container`, with `:ro` where it is not to be written."""

    def check(self, value: object) -> Bind:
        example = "write /on/this/machine:/in/the/container, and :ro behind it where it must not be written"
        if not isinstance(value, str):
            raise refusal("bad-bind", f"must be text such as /data:/data:ro, not {quote(value)}", example)
        parts = value.split(":")
        if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
            raise refusal("bad-bind", f"{quote(value)} is not SOURCE:TARGET or SOURCE:TARGET:ro", example)
        for part in parts[:2]:
            if not part.startswith("/") or "\0" in part:
                hint = example if part == parts[1] else f"write where it is on this machine: /.../{quote(value)[1:-1]}"
                raise refusal("bad-bind", f"{quote(part)} is not an absolute path", hint)
        if parts[1].rstrip("/") in ("", "/proc", "/sys", "/dev"):
            raise refusal("bad-bind", f"{quote(parts[1])} in the container is not to be hidden", "bind to another path")
        return Bind(source=parts[0], target=parts[1], read_only=parts[2:] == ["ro"])

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": "^/[^:]*:/[^:]*(:(ro|rw))?$"}


_MEMORY = BYTES.called("size of memory", "256MB")


@dataclass(frozen=True, slots=True)
class _Memory(Checked):
    """Memory: "256MB", "1GiB"."""

    def check(self, value: object) -> int:
        count = read_quantity(value, ByteCount, _MEMORY).bytes
        if not _SMALLEST_MEMORY <= count <= _LARGEST_MEMORY:
            raise refusal("out-of-range", f"must be from 6MiB to 16384GiB, not {quote(value)}", "Docker refuses less")
        return count

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": _MEMORY.pattern(), "examples": [_MEMORY.example]}


@dataclass(frozen=True, slots=True)
class _Capability(Checked):
    """A capability of Linux, with or without CAP_."""

    def check(self, value: object) -> str:
        name = value.upper().removeprefix("CAP_") if isinstance(value, str) else ""
        if name == "ALL":
            raise refusal("bad-capability", "a node gets the capabilities it needs, never all", "name those it needs")
        if name not in CAPABILITIES:
            hint = choice_hint(name, CAPABILITIES, "capabilities(7) lists them")
            raise refusal("bad-capability", f"there is no capability {quote(value)}", hint)
        return name

    def json_schema(self) -> JsonSchemaValue:
        return {"enum": list(CAPABILITIES)}


class HealthSpec(SpecModel):
    """`healthcheck:`: a command whose status 0 means that the container is well. `deploy` waits for it."""

    test: CommandField = Field(description="Names the command that is run in the container; its status 0 is healthy.")
    interval: DurationField = Field(
        default=Duration.parse("1s"), description="Gives the time between two checks, such as 1s."
    )
    timeout: DurationField = Field(
        default=Duration.parse("5s"), description="Says how long a check may take, such as 5s."
    )
    retries: Annotated[int, Whole(1, 1000)] = Field(
        default=3, description="Says how many failures make the container unhealthy."
    )
    start_period: Written[DurationField] = Field(default=None, description="Says how early failures do not count.")


class ContainerSettings(SpecModel):
    """The keys by which a node, a group, a kind or the defaults say how nodes are realised."""

    runtime: Written[Annotated[str, OneOf(RUNTIMES, noun="runtime")]] = Field(
        default=None, description=f"Chooses a network namespace (netns, the default) or {_CONTAINERS}."
    )
    image: Written[Annotated[str, _Image()]] = Field(
        default=None,
        description=f"Names the image of a container; the default is {HOST_IMAGE} or {SWITCH_IMAGE}, which"
        " `testbed images build` builds.",
    )
    entrypoint: Written[CommandField] = Field(default=None, description="Replaces the image's entry point.")
    cmd: Written[CommandField] = Field(default=None, description="Replaces the image's command.")
    binds: Entries[list[Annotated[Bind, _Bind()]]] = Field(
        default=[],
        description="Lists paths of this machine in the container: /here:/there[:ro]; inherited ones come first.",
    )
    cpu: Written[Annotated[float, Number(0.01, 1024, measure=NUMBER.called("number of CPUs", "0.5"))]] = Field(
        default=None, description="Limits the CPUs that it may use, such as 0.5."
    )
    memory: Written[Annotated[int, _Memory()]] = Field(
        default=None, description="Limits the memory that it may use, such as 256MB."
    )
    capabilities: Entries[list[Annotated[str, _Capability()]]] = Field(
        default=[], description="Lists capabilities beyond those that a node of its kind has, such as SYS_PTRACE."
    )
    healthcheck: Section[HealthSpec | None] = Field(
        default=None, description="Says how to tell whether the container is well."
    )


Refuse = Callable[..., None]


def resolve_container(
    name: str, kind: NodeKind, layers: Sequence[tuple[Path, ContainerSettings]], refuse: Refuse
) -> Container | None:
    """The container that these settings (outermost first) describe; None where the node is a namespace.

    What the node's own, innermost layer says and its runtime does not have is told to `refuse`; inherited, it is passed
    over.
    """
    runtime = _innermost(layers, "runtime") or NETNS
    declared = CONTAINER_RUNTIMES.get(runtime)
    unknown = [key for key in CONTAINER_KEYS if declared is None or key not in declared.keys]
    path, own = layers[-1]
    for key in unknown:
        if getattr(own, key) not in (None, []):
            having = " or ".join(one.name for one in CONTAINER_RUNTIMES.values() if key in one.keys)
            hint = f"add runtime: {having}, here or in what the node inherits from, or remove the key"
            noun = "a network namespace" if declared is None else declared.description
            refuse("without-container", (*path, key), f"{name!r} is {noun}, which has no {key}", hint, key=True)
    if declared is None:
        return None
    if unknown:
        unwritten = {key: ContainerSettings.model_fields[key].default for key in unknown}
        layers = [(path, layer.model_copy(update=unwritten)) for path, layer in layers]
    health = _innermost(layers, "healthcheck")
    entrypoint, command = _innermost(layers, "entrypoint"), _innermost(layers, "cmd")
    image = HOST_IMAGE if kind is NodeKind.HOST else SWITCH_IMAGE
    return Container(
        runtime=runtime,
        image=_innermost(layers, "image") or ("" if "image" in unknown else image),
        entrypoint=entrypoint,
        command=command,
        binds=_binds(name, layers, refuse),
        cpus=_innermost(layers, "cpu"),
        memory_bytes=_innermost(layers, "memory"),
        capabilities=tuple(sorted({item for _, layer in layers for item in layer.capabilities})),
        health_check=None if health is None else HealthCheck(**dict(health)),
    )


def _binds(name: str, layers: Sequence[tuple[Path, ContainerSettings]], refuse: Refuse) -> tuple[Bind, ...]:
    """Return all layers' binds; two for one place of the container are a problem of the inner one."""
    found: dict[str, Bind] = {}
    for path, layer in layers:
        for number, bind in enumerate(layer.binds):
            if found.setdefault(bind.target, bind) != bind:
                message = f"{name!r} has two binds to {bind.target}"
                refuse("duplicate-bind", (*path, "binds", number), message, "keep one of them")
    return tuple(found.values())


def _innermost(layers: Sequence[tuple[Path, ContainerSettings]], key: str) -> Any:
    return next((value for _, layer in reversed(layers) if (value := getattr(layer, key)) is not None), None)
