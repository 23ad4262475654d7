"""Rules that the keys of a transport follow beside their types: forms of names, and values that exclude each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.names import choice_hint
from testbed.lab.core.model.tcp import DEFAULT_TCP_CC, TCP_CCS
from testbed.workload.parameters import Parameter, flag, number, whole

if TYPE_CHECKING:
    from testbed.protocols.congestion.controller import FlowController

ATOMIC_BYTES = 8
"""The size of an atomic operation (InfiniBand volume 1, section 9.4.5)."""
ATOMIC_VERBS = ("fetch-and-add", "compare-and-swap")
NVME_BLOCK_BYTES = 512
"""The block of a target's namespace."""
ROCE_MTUS = (4096, 2048, 1024, 512, 256)
"""The payloads of a full RoCE packet (InfiniBand volume 1, section 9.4.3), largest first."""

PLANNED = "planned"
"""The value of `paths` with which each channel has a path of its own."""

ROCE_HEADER_BYTES = 20 + 8 + 12 + 16 + 4
"""Beside the payload of a RoCEv2 packet, inside an MTU: IPv4, UDP, BTH, RETH, ICRC (InfiniBand volume 1, annex A17)."""
UET_BYTES = 20 + 8 + 12 + 44
"""Beside the payload of a UET packet: IPv4, UDP, RUD request, standard SES header (UE Specification 1.0, tables 3-30
and 3-8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A value of `transport.KEY` that cannot stand: a stable code, a message, and perhaps a way out."""

    key: str
    message: str
    code: str = "contradiction"
    hint: str | None = None
    of_key: bool = False
    """The key should not be there at all, rather than have another value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """The form of a text that names a `noun`."""

    pattern: re.Pattern[str]
    noun: str
    example: str


Values = Mapping[str, Any]
"""The values that are written in `transport:`, by key."""


def no_conflict(values: Values) -> Iterator[Conflict]:
    """Find nothing wrong, whatever the values are."""
    yield from ()


TRAFFIC_CLASS_RULE = NameRule(
    pattern=re.compile(r"[a-z][a-z0-9_-]{0,15}"),
    noun="traffic class",
    example="lower-case letters, digits, '_' and '-'",
)


def path_mtu_conflicts(mtu: object) -> Iterator[Conflict]:
    """Find a path MTU that InfiniBand does not have."""
    if mtu is not None and mtu not in ROCE_MTUS:
        allowed = ", ".join(str(one) for one in sorted(ROCE_MTUS))
        yield Conflict(key="path_mtu", code="unknown-value", message=f"must be one of {allowed}, not {mtu}")


_BY_RATE = ("dcqcn", "ccti", "none")
"""The congestion controls that hear nothing from acknowledgements."""
CC_PREFIX = "cc_"
"""A key of `transport:` that begins so is a parameter of the congestion control."""


def roce_conflicts(values: Values) -> Iterator[Conflict]:
    """Find what does not go together of a transport with RoCE's queue pairs."""
    yield from path_mtu_conflicts(values.get("path_mtu"))
    if values.get("paths") == PLANNED:
        for key, single in (("qps", (None, 1)), ("connections", (None, "rc"))):
            if values.get(key) not in single:
                message = (
                    f"a planned path is that of a channel with one queue pair of its own, and {key} is {values[key]}"
                )
                yield Conflict(key=key, message=message, hint="remove the key, or paths: hashed", of_key=True)
    if values.get("recovery") == "go-back-0":
        if values.get("ooo"):
            message = "go-back-0 forgets what came of a message, and ooo keeps it"
            yield Conflict(key="ooo", message=message, hint="remove the key, or recovery: go-back-n", of_key=True)
        if values.get("cc") not in (None, *_BY_RATE):
            message = f"go-back-0 acknowledges whole messages alone, and {values['cc']} waits for more"
            yield Conflict(key="cc", message=message, hint=f"cc: {' or '.join(_BY_RATE)}", of_key=True)
    yield from _initiator_conflicts(values, "dct")
    from testbed.protocols.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER, NONE

    controller = CONTROLLERS.get(values.get("cc") or DEFAULT_CONTROLLER)
    if controller is None or controller is NONE:
        return  # said of `cc`; and where a matrix turns it off, what is said of it for the other points has no meaning
    chosen = values.get("parameters")
    if chosen is not None and chosen not in controller.parameter_sets:
        known = ", ".join(controller.parameter_sets)
        yield Conflict(
            key="parameters",
            code="unknown-value",
            message=f"{controller.name} has no set of parameters {chosen!r}",
            hint=f"one of {known}" if known else "remove the key",
        )
    for key, value in values.items():
        name = key.removeprefix(CC_PREFIX)
        if key.startswith(CC_PREFIX) and value is not None and name not in controller.defaults:
            owner = next((one.name for one in CONTROLLERS.values() if name in one.defaults), None)
            message = f"{controller.name} has no such parameter"
            yield Conflict(key=key, message=message, hint=f"cc: {owner}" if owner else None, of_key=True)
    yield from _parameter_conflicts(values, controller)


def _parameter_conflicts(values: Values, controller: FlowController) -> Iterator[Conflict]:
    """Find parameters of a congestion control with which it cannot work."""
    from testbed.protocols.congestion.controller import FlowSettings
    from testbed.protocols.errors import UsageError

    chosen = values.get("parameters") or next(iter(controller.parameter_sets), "")
    defaults = controller.values.get(chosen, controller.defaults)
    written = {key.removeprefix(CC_PREFIX): value for key, value in values.items() if key.startswith(CC_PREFIX)}
    left = {name: value for name, value in written.items() if name in controller.defaults and value is not None}
    while left and chosen in controller.parameter_sets:
        try:
            controller.make(FlowSettings(**_ANY_FLOW, parameters=chosen, overrides=left))
        except UsageError as error:
            name = next((one for one in left if str(error).startswith(f"{one} ")), next(reversed(left)))
            value = left.pop(name)
            hint = f"the default is {_as_written(defaults[name])}"
            if value > 1 and str(error).endswith("at most 1"):
                hint = f"write {1 / Fraction(value).limit_denominator(1000)}"
            yield Conflict(key=CC_PREFIX + name, code="out-of-range", message=str(error), hint=hint)
        else:
            return


_ANY_FLOW: dict[str, Any] = {
    "link_rate_bps": 100_000_000_000,
    "base_rtt_ns": 10_000,
    "time_scale": 1.0,
    "mtu_bytes": 4096,
}
"""The facts of a flow, which its parameters need not fit."""


def _as_written(number: float) -> str:
    """Return a number as a file has it; a part of one, such as 1/256, as that."""
    part = Fraction(number).limit_denominator(1 << 20)
    return str(part) if part.numerator == 1 and part.denominator > 100 and float(part) == number else f"{number:.12g}"


def _initiator_conflicts(values: Values, dynamic: str) -> Iterator[Conflict]:
    if values.get("dcis") is not None and values.get("connections") is None:  # "rc" may be a point of a matrix
        message = "there are initiators with dynamic connections alone"
        yield Conflict(key="dcis", message=message, hint=f"connections: {dynamic}", of_key=True)


_OF_CONNECTIONS = ("connections", "dcis", "qps", "ooo", "recovery", "retry_count", "timeout")
"""Keys about acknowledgements and connections, of which datagrams have none."""


def infiniband_conflicts(values: Values) -> Iterator[Conflict]:
    """Find what does not go together of InfiniBand's transport."""
    yield from path_mtu_conflicts(values.get("path_mtu"))
    yield from _initiator_conflicts(values, "dc")
    if values.get("cc") == "ccti":
        from testbed.protocols.congestion.registry import CONTROLLERS

        yield from _parameter_conflicts(values, CONTROLLERS["ccti"])
    if values.get("service") != "ud":
        return
    for key in _OF_CONNECTIONS:
        if values.get(key) not in (None, False):
            message = f"{key} is of connections, and datagrams (service: ud) have none"
            yield Conflict(key=key, message=message, hint="remove the key, or service: rc", of_key=True)


TCP_CC_RULE = NameRule(
    pattern=re.compile(r"[a-z][a-z0-9_-]{0,14}"), noun="congestion control", example="such as cubic, dctcp, bbr"
)
_OF_THIS_KERNEL = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
"""Lists what this kernel has, modules that are loaded among it, whoever wrote them."""


def tcp_conflicts(values: Values) -> Iterator[Conflict]:
    """Find a congestion control that is of no kernel's TCP, as far as is known, and may be of one of our transports."""
    cc = values.get("cc")
    if cc is None or cc in TCP_CCS or not TCP_CC_RULE.pattern.fullmatch(cc):
        return
    from testbed.protocols.congestion.registry import CONTROLLERS as OF_ROCE
    from testbed.protocols.uet.congestion.registry import CONTROLLERS as OF_UET

    for kind, known in (("roce", OF_ROCE), ("uet", OF_UET)):
        if cc in known and cc != "none":
            hint = f"transport: {{kind: {kind}, cc: {cc}}}; TCP's are the kernel's, such as {DEFAULT_TCP_CC}"
            yield Conflict(key="cc", message=f"{cc} is a congestion control of {kind}, not of TCP", hint=hint)
            return
    try:
        here = _OF_THIS_KERNEL.read_text().split()
    except OSError:
        here = []
    if cc not in here:
        meant = choice_hint(cc, dict.fromkeys((*TCP_CCS, *here)))
        yield Conflict(key="cc", code="unknown-value", message=f"TCP has no congestion control {cc!r}", hint=meant)


def nvme_conflicts(values: Values) -> Iterator[Conflict]:
    """Find what does not go together of NVMe/TCP."""
    yield from tcp_conflicts(values)
    size = values.get("io_bytes")
    if size is not None and size % NVME_BLOCK_BYTES:
        message = f"must be a multiple of {NVME_BLOCK_BYTES}, not {size}"
        yield Conflict(key="io_bytes", code="unknown-value", message=message, hint="io_bytes: 1048576")


_LARGEST_PARAMETER = 1e13
"""Ten times the bit/s of the fastest NIC."""


def cc_parameters(*only: str) -> Iterator[Parameter]:
    """Return the parameters of all controllers, or of these alone, each once."""
    from testbed.protocols.congestion.registry import CONTROLLERS

    named: dict[str, list[str]] = {}
    flags: set[str] = set()
    wholes: set[str] = set()
    for controller in CONTROLLERS.values():
        if only and controller.name not in only:
            continue
        for name, value in controller.defaults.items():
            named.setdefault(name, []).append(controller.name)
            if isinstance(value, bool):
                flags.add(name)
            elif isinstance(value, int):
                wholes.add(name)
    for name, owners in named.items():
        key = CC_PREFIX + name
        description = f"Sets {name} of {' and '.join(owners)}; the default is that of the set of parameters."
        if name in flags:
            yield flag(key, description, default=None)
        elif name in wholes:
            yield whole(key, None, description, low=0, high=int(_LARGEST_PARAMETER))
        else:
            yield number(key, None, description, low=0, high=_LARGEST_PARAMETER)
