"""The agreement of machines on a lab: by what they say of themselves, and what lies between them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from testbed.api.pool.over.messages import LookAnswer, ReachAnswer
from testbed.api.pool.over.records import SpreadMachine
from testbed.base.errors import TestbedError
from testbed.base.units import Duration, Rate
from testbed.lab.core.model import DelayBy, Lab, LinkKind
from testbed.lab.core.model.machines import LabMachine
from testbed.lab.core.plan.scale import round_up_digit
from testbed.lab.core.plan.stable import SLOTS, slot_for
from testbed.lab.features.machines.part import LabPart, Peer
from testbed.lab.features.machines.places import CutShare, NotSpread
from testbed.lab.features.machines.wires import OUTER_BYTES

MOST_DELAY_SHARE = 0.1
"""The underlay may take so much of the smallest delay of a cut link, and no more: it varies by as much."""
MOST_RATE_SHARE = 0.5
"""Cut links may ask for so much of the underlay's rate, all at once."""
CROSSINGS_COST = 4 / 3
"""A lab on one machine asks less of it than its part of a lab on two: a packet that crosses costs what a hop more does
(6.95 us against 3.35 us, measured as it is forwarded), and most go over three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadAgreement:
    """All that the machines of a lab have in common. `parts` are theirs, by name; `warnings` are sentences; `key` is
    what they sign their messages with, in hexadecimal digits, and nobody else is told."""

    k: float
    reason: str
    slot: int
    delay_by: str
    reaction_ns: int
    parts: Mapping[str, LabPart]
    warnings: tuple[str, ...] = ()
    key: str = field(default="", repr=False)


def parse_over(text: str) -> tuple[LabMachine, ...]:
    """Return the machines of `--over ssh://a,ssh://b`, called by their hosts. Raises `TestbedError`."""
    machines: list[LabMachine] = []
    for word in text.split(","):
        said = word.strip().removeprefix("ssh://")
        if not said or said == word.strip() or any(character.isspace() for character in said):
            raise TestbedError(
                f"--over: {word.strip() or 'nothing'} is no machine", hint="--over ssh://root@a,ssh://root@b"
            )
        name = said.rpartition("@")[2].partition("/")[0].removesuffix(":22")
        if name in (machine.name for machine in machines):
            raise TestbedError(f"--over {text}: {name} is named twice", hint="name each machine once")
        machines.append(LabMachine(name=name, ssh=said))
    if len(machines) < 2:
        raise TestbedError(f"--over {text}: that is one machine", hint=f"testbed --on {text} deploy")
    return tuple(machines)


def require_alike(looks: Mapping[str, LookAnswer], own_version: str) -> None:
    """Raise `NotSpread` where a machine has another testbed than this one or than the first, or the lab already."""
    first, reference = next(iter(looks.items()))
    for name, look in looks.items():
        if look.testbed != own_version:
            raise NotSpread(
                f"{name} has testbed {look.testbed}, and here is {own_version}", hint="bring both up to date"
            )
        if look.sources != reference.sources:
            raise NotSpread(
                f"{name} has other sources of testbed than {first}", hint="bring both checkouts to the same state"
            )
    if there := [name for name, look in looks.items() if look.exists]:
        hint = "destroy it there, or choose another name: -n"
        raise NotSpread(f"a lab of that name is on {', '.join(there)}", hint=hint)


def largest_packet(cut: CutShare) -> int:
    """The MTU that the underlay must have: that of the largest cut link, and room for the outer headers."""
    return max((link.mtu_bytes for link in cut.links), default=0) + OUTER_BYTES


def agree(
    lab: Lab,
    places: Mapping[str, str],
    cut: CutShare,
    looks: Mapping[str, LookAnswer],
    reaches: Mapping[str, ReachAnswer],
) -> SpreadAgreement:
    """Return what these machines agree on. Raises `NotSpread` where the underlay between them does not suffice."""
    _require_apart(looks)
    packet = largest_packet(cut)
    for name, look in looks.items():
        if look.mtu_bytes < packet:
            raise NotSpread(
                f"{look.device} of {name} has an MTU of {look.mtu_bytes} bytes; frames between machines need {packet}",
                hint=f"ip link set {look.device} mtu 9000, on all machines and what lies between, or"
                f" fabric: {{mtu: {max(576, look.mtu_bytes - OUTER_BYTES)}}}",
            )
    for name, reach in reaches.items():
        for other, why in reach.lost.items():
            raise NotSpread(
                f"{name} does not reach {other} ({looks[other].address}) with packets of {packet} bytes: {why}",
                hint="what lies between them must pass ICMP, and IP packets of that size whole",
            )
    k, reason = _time_scale(lab, looks)
    one_way = {name: {to: rtt // 2 for to, rtt in reach.rtt_ns.items()} for name, reach in reaches.items()}
    _require_quick(cut, k, places, one_way)
    warnings = _require_wide(cut, k, places, looks)
    longest = max((rtt for reach in reaches.values() for rtt in reach.rtt_ns.values()), default=0)
    by = {look.delay_by for look in looks.values()}
    return SpreadAgreement(
        k=k,
        reason=reason,
        slot=_slot(lab.name, looks),
        delay_by="" if by == {""} else DelayBy.KERNEL.value if by == {DelayBy.KERNEL} else DelayBy.ENDPOINT.value,
        reaction_ns=max(look.reaction_ns for look in looks.values()) + longest,
        parts=_parts(places, looks, one_way),
        warnings=tuple(warnings),
    )


def _require_apart(looks: Mapping[str, LookAnswer]) -> None:
    """Raise `NotSpread` where two machines have one address: they are the same, or are reached by forwarded ports."""
    seen: dict[str, str] = {}
    for name, look in looks.items():
        if (other := seen.setdefault(look.address, name)) != name:
            raise NotSpread(
                f"{other} and {name} both have the address {look.address}",
                hint="name each machine once, and the interface that others reach it by:"
                " machines: {NAME: {underlay: eth1}}",
            )


def _time_scale(lab: Lab, looks: Mapping[str, LookAnswer]) -> tuple[float, str]:
    if lab.scale.time is not None:
        return lab.scale.time, "fixed by the file"
    name, look = max(looks.items(), key=lambda item: item[1].k)
    return round_up_digit(look.k * CROSSINGS_COST), f"{name} asks for {look.k:g} and a third more for what crosses"


def _slot(name: str, looks: Mapping[str, LookAnswer]) -> int:
    taken = {slot for look in looks.values() for slot in look.taken}
    for step in range(SLOTS):
        if (slot := (slot_for(name) + step) % SLOTS) not in taken:
            return slot
    raise NotSpread(f"no slot is free on all of {', '.join(looks)}", hint="destroy a lab")


def _require_quick(
    cut: CutShare, k: float, places: Mapping[str, str], one_way: Mapping[str, Mapping[str, int]]
) -> None:
    """Raise `NotSpread` where the underlay takes more than a little of a cut link's delay."""
    for link in cut.links:
        if link.delay is None or link.delay.by is DelayBy.IGNORE:
            continue
        lab_ns = link.delay.value.scaled(k).ns
        a, b = places[link.a.node], places[link.b.node]
        taken = max(one_way[a][b], one_way[b][a])
        if taken > MOST_DELAY_SHARE * lab_ns:
            raise NotSpread(
                f"from {a} to {b} a packet takes {Duration(taken)}, and {link.a} to {link.b} only {Duration(lab_ns)}"
                f" in lab time (k = {k:g})",
                hint=f"scale: {{time: {round_up_digit(k * taken / (MOST_DELAY_SHARE * lab_ns)):g}}}",
            )


def _require_wide(cut: CutShare, k: float, places: Mapping[str, str], looks: Mapping[str, LookAnswer]) -> list[str]:
    """Raise `NotSpread` where cut links ask too much of a machine's underlay. Machines that do not say how fast it is
    are named."""
    warnings = []
    for name, look in looks.items():
        asked = sum(
            link.rate.bps / (1 if link.kind is LinkKind.MANAGEMENT else k)
            for link in cut.links
            if name in (places[link.a.node], places[link.b.node])
        )
        if not look.speed_bps:
            warnings.append(
                f"{look.device} of {name} does not say how fast it is; cut links ask for {Rate(round(asked))}"
            )
        elif asked > MOST_RATE_SHARE * look.speed_bps:
            raise NotSpread(
                f"the cut links of {name} ask for {Rate(round(asked))}, more than half of the {Rate(look.speed_bps)} of"
                f" {look.device}",
                hint=f"scale: {{time: {round_up_digit(k * asked / (MOST_RATE_SHARE * look.speed_bps)):g}}}",
            )
    return warnings


def _parts(
    places: Mapping[str, str], looks: Mapping[str, LookAnswer], one_way: Mapping[str, Mapping[str, int]]
) -> dict[str, LabPart]:
    return {
        name: LabPart(
            machine=name,
            places=places,
            address=str(IPv4Address(look.address)),
            device=look.device,
            peers={
                other: Peer(address=str(IPv4Address(theirs.address)), delay_ns=one_way[name].get(other, 0))
                for other, theirs in looks.items()
                if other != name
            },
        )
        for name, look in looks.items()
    }


def as_spread(machines: Sequence[LabMachine]) -> tuple[SpreadMachine, ...]:
    """Return machines as they are recorded, before their addresses are known."""
    return tuple(SpreadMachine(name=machine.name, ssh=machine.ssh) for machine in machines)
