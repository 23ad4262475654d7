"""`check --isolation`: intended reachability with real packets, then the attacks, then reachability again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from testbed.base.errors import TestbedError
from testbed.base.names import first_few
from testbed.lab.checks.isolation import leaked_targets
from testbed.lab.checks.isolation.arena import Arena, Fate, Outcome
from testbed.lab.checks.isolation.attacks import ATTACKS, Attack
from testbed.lab.checks.isolation.leaked_targets import find_leaks, leak
from testbed.lab.checks.isolation.management import check_management
from testbed.lab.checks.isolation.reachability import (
    Matrix,
    Pair,
    Protocol,
    intended_matrix,
    make_room_for,
    reached,
    service_matrices,
    silent_gateways,
)
from testbed.lab.checks.isolation.sites import Site, find_sites
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import LabState
from testbed.lab.core.deploy.watch.check import FAILURES_KEPT, CheckReport, CheckResult, CheckStatus
from testbed.lab.core.deploy.watch.probe import nic_text

MOST_AT_ONCE = 12
"""Tests of reachability that run at the same time: two versions of IP, three protocols, services of tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackResult:
    """An attack in a network: at how many ports it was tried, and what became of it. `dropped` counts packets."""

    network: str
    attack: str
    guard: str
    guarded: bool
    ports: int
    stopped: int
    succeeded: int
    unseen: int
    dropped: int
    by_password: int = 0
    """At how many ports it was the password of BGP that stopped it."""
    not_stopped_at: tuple[str, ...] = ()
    why_not_tried: str = ""
    """The result of an attack that was tried nowhere."""
    not_tried: Mapping[str, int] = field(default_factory=dict)
    """At how many ports it was not tried, by the reason."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IsolationReport(CheckReport):
    """All tests as `CheckReport` has them, and the attacks one by one."""

    attacks: tuple[AttackResult, ...] = ()


def check_isolation(lab: RunningLab, network: str | None = None) -> IsolationReport:
    """Test who reaches whom and attack every access port, of one network or of all.

    What attacks do to tables of neighbours and bridges is undone. Never raises for what it finds: what cannot be tried
    is "unknown" with its reason.
    """
    life_cycle = lab.life_cycle
    if life_cycle is not LabState.RUNNING:
        state = life_cycle.value if life_cycle else "unknown"
        unknown = CheckResult(name="life cycle", status=CheckStatus.UNKNOWN, count=0, detail=f"the lab is {state}")
        return IsolationReport(lab=lab.name, results=(unknown,))
    networks = [name for name in lab.model.data_networks if network in (None, name)]
    management = lab.plan.management
    results: list[CheckResult] = []
    attacks: list[AttackResult] = []
    try:
        if management is not None and network in (None, management.network):
            results += check_management(lab)
            if not networks:
                return IsolationReport(lab=lab.name, results=tuple(results))
        families = [False, True] if _have_ipv6(lab, networks) else [False]
        results += _reach_all(lab, networks, families)
        results.append(_gateways(lab, networks))
        for name in networks:
            found, more = _attack(lab, name)
            results += found
            attacks += more
            if lab.model.overlay is not None and name in lab.model.overlay.mtu_bytes:
                result, summary = _leak(lab, name, guarded=name in lab.model.overlay.rt_filter)
                results += [result] if summary.ports else []
                attacks.append(summary)
        results += _reach_again(lab, networks, families)
    except (TestbedError, OSError) as error:
        reason = error.message if isinstance(error, TestbedError) else str(error)
        results.append(CheckResult(name="isolation", status=CheckStatus.UNKNOWN, count=0, detail=reason))
    return IsolationReport(lab=lab.name, results=tuple(results), attacks=tuple(attacks))


# ------------------------------------------------------------------ reachability


def _have_ipv6(lab: RunningLab, networks: Sequence[str]) -> bool:
    nics = (nic for host in lab.plan.hosts for nic in host.nics)
    return any(nic.address6 is not None and nic.network in networks for nic in nics)


def _reach_all(lab: RunningLab, networks: Sequence[str], families: Sequence[bool]) -> list[CheckResult]:
    """Try every protocol and every service that tenants offer, over IPv4 (False) and over IPv6 (True)."""
    tried: list[tuple[str, Matrix]] = []
    for ipv6 in families:
        tried += [(protocol, intended_matrix(lab, networks, protocol, ipv6=ipv6)) for protocol in Protocol]
        services = service_matrices(lab, networks, ipv6=ipv6)
        tried += [(f"{matrix.service} of tenants", matrix) for matrix in services]
    return _reach(lab, tried)


def _reach_again(lab: RunningLab, networks: Sequence[str], families: Sequence[bool]) -> list[CheckResult]:
    matrices = [intended_matrix(lab, networks, Protocol.UDP, ipv6=ipv6).only_intended() for ipv6 in families]
    return _reach(lab, [("UDP after the attacks", matrix) for matrix in matrices])


def _reach(lab: RunningLab, tried: Sequence[tuple[str, Matrix]]) -> list[CheckResult]:
    """Try these at the same time, for most of it is waiting for what does not come; each has sockets of its own."""
    make_room_for([matrix for _, matrix in tried])
    with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
        arrived = threads.map(lambda one: reached(lab.name, one[1]), tried)
        return [_reached_of(matrix, what, found) for (what, matrix), found in zip(tried, arrived, strict=True)]


def _reached_of(matrix: Matrix, what: str, arrived: Set[int]) -> CheckResult:
    name = f"{what}, IPv6" if matrix.ipv6 else what
    lost = [_pair(pair) + " lost" for n, pair in enumerate(matrix.pairs) if n in matrix.intended and n not in arrived]
    leaked = [_pair(matrix.pairs[n]) + " arrived" for n in sorted(arrived - matrix.intended)]
    count, meant = len(matrix.pairs), len(matrix.intended)
    if not count:
        return CheckResult(name=name, status=CheckStatus.UNKNOWN, count=0, detail="there are no two hosts")
    of = f" of {matrix.total}" if matrix.total > count else ""
    detail = f"{count}{of} NIC pairs: {meant} reach each other, {count - meant} do not, as planned"
    if lost or leaked:
        detail = f"of {meant} NIC pairs that should reach each other {len(lost)} do not;"
        detail += f" of {count - meant} that should not {len(leaked)} do"
    return CheckResult(
        name=name,
        status=CheckStatus.FAIL if lost or leaked else CheckStatus.PASS,
        count=count,
        detail=detail,
        failures=tuple([*leaked, *lost][:FAILURES_KEPT]),
    )


def _pair(pair: Pair) -> str:
    return f"{nic_text(pair[0])} -> {nic_text(pair[1])}"


def _gateways(lab: RunningLab, networks: Sequence[str]) -> CheckResult:
    nics = [nic for host in lab.plan.hosts for nic in host.nics if nic.network in networks and nic.gateway is not None]
    silent = [f"{nic_text(nic)}: {nic.gateway} is silent" for nic in silent_gateways(lab.name, nics)]
    dual = [nic for nic in nics if nic.gateway6 is not None]
    silent += [f"{nic_text(nic)}: {nic.gateway6} is silent" for nic in silent_gateways(lab.name, dual, ipv6=True)]
    count = len(nics) + len(dual)
    return CheckResult(
        name="gateways",
        status=CheckStatus.FAIL if silent else CheckStatus.PASS,
        count=count,
        detail=f"{count - len(silent)} of {count} gateways answer an echo",
        failures=tuple(silent[:FAILURES_KEPT]),
    )


# ------------------------------------------------------------------ attacks


def _attack(lab: RunningLab, network: str) -> tuple[list[CheckResult], list[AttackResult]]:
    sites = find_sites(lab.of_network(network).model, lab.plan, network)
    if not sites:
        why = "no host has a gateway in it"
        unknown = CheckResult(name=f"attacks, {network}", status=CheckStatus.UNKNOWN, count=0, detail=why)
        return [unknown], []
    results: list[CheckResult] = []
    attacks: list[AttackResult] = []
    with closing(Arena(lab.name, sites)) as arena:
        for number, attack in enumerate(ATTACKS):
            reasons = [attack.misfit(site) for site in sites]
            fit = [site for site, reason in zip(sites, reasons, strict=True) if not reason]
            misfits = Counter(filter(None, reasons))
            if not fit:
                attacks.append(_summary(network, attack, [], sites, misfits))
                continue
            outcomes = arena.carry_out(attack, number, fit, partial(warm_up, lab, fit))
            attacks.append(_summary(network, attack, outcomes, fit, misfits))
            results.append(_result(network, attack, outcomes))
    return results, attacks


def _leak(lab: RunningLab, network: str, *, guarded: bool) -> tuple[CheckResult, AttackResult]:
    """Have each leaf announce the route target of a tenant that it has no part in."""
    tried = find_leaks(lab, network)
    fates = {str(one): leak(lab, one) for one in tried}
    count = Counter(fates.values())
    failed = tuple(name for name, fate in fates.items() if fate is not Fate.STOPPED)
    summary = AttackResult(
        network=network,
        attack=leaked_targets.NAME,
        guard=leaked_targets.GUARD,
        guarded=guarded,
        ports=len(tried),
        stopped=count[Fate.STOPPED],
        succeeded=count[Fate.SUCCEEDED],
        unseen=count[Fate.UNSEEN],
        dropped=0,
        not_stopped_at=failed,
        why_not_tried="" if tried else "no leaf lacks the VRF of a tenant that others have",
    )
    guard = leaked_targets.GUARD if guarded else f"no {leaked_targets.GUARD}"
    what = f"stopped at {len(tried)} {'leaf' if len(tried) == 1 else 'leaves'}"
    status = CheckStatus.PASS
    if count[Fate.UNSEEN]:
        what = f"neither taken up nor stopped at {count[Fate.UNSEEN]} of {len(tried)} leaves"
        status = CheckStatus.UNKNOWN
    if count[Fate.SUCCEEDED]:
        what = f"succeeded at {count[Fate.SUCCEEDED]} of {len(tried)} leaves"
        status = CheckStatus.FAIL
    result = CheckResult(
        name=f"{leaked_targets.NAME}, {network}",
        status=status,
        count=len(tried),
        detail=f"{what}; {guard}",
        failures=tuple(f"from {name}" for name in failed),
    )
    return result, summary


def warm_up(lab: RunningLab, sites: Sequence[Site]) -> None:
    """Have hosts and switches know each other, so that an attack has something to falsify."""
    nics = [site.nic for site in sites]
    silent_gateways(lab.name, nics)
    if dual := [nic for nic in nics if nic.gateway6 is not None]:
        silent_gateways(lab.name, dual, ipv6=True)


def untried_lines(attacks: Sequence[AttackResult]) -> list[str]:
    """Lines that say which attacks were not tried at how many ports, those of one network and reason together."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for attack in attacks:
        total = attack.ports + sum(attack.not_tried.values())
        for reason, ports in attack.not_tried.items():
            where = f" at {ports} of {total} ports" if ports < total else ""
            names.setdefault((attack.network, where, reason), []).append(attack.attack)
    return [
        f"not tried, {network}{where}, as {why}: {', '.join(them)}" for (network, where, why), them in names.items()
    ]


def _summary(
    network: str, attack: Attack, outcomes: Sequence[Outcome], sites: Sequence[Site], misfits: Mapping[str, int]
) -> AttackResult:
    fates = Counter(outcome.fate for outcome in outcomes)
    return AttackResult(
        network=network,
        attack=attack.name,
        guard=attack.guard,
        guarded=attack.guard in sites[0].guards,
        ports=len(outcomes),
        stopped=fates[Fate.STOPPED],
        succeeded=fates[Fate.SUCCEEDED],
        unseen=fates[Fate.UNSEEN],
        dropped=sum(outcome.dropped for outcome in outcomes),
        by_password=sum(outcome.by_password for outcome in outcomes),
        not_stopped_at=tuple(str(outcome.site) for outcome in outcomes if outcome.fate is not Fate.STOPPED),
        why_not_tried="" if outcomes else "; ".join(misfits),
        not_tried=dict(misfits),
    )


def _where(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Lines that say from which ports an attack was not stopped, those with the same words together."""
    ports: dict[str, list[str]] = {}
    for outcome in outcomes:
        ports.setdefault(f"{outcome.fate}: {outcome.detail}".removesuffix(": "), []).append(str(outcome.site))
    return tuple(
        ("from all ports" if len(places) == len(outcomes) > 4 else f"from {first_few(places, 4)}") + f" {words}"
        for words, places in ports.items()
    )


def _result(network: str, attack: Attack, outcomes: Sequence[Outcome]) -> CheckResult:
    guarded = attack.guard in outcomes[0].site.guards
    guard = f"guard {attack.guard}" if guarded else f"no guard {attack.guard}"
    if any(outcome.by_password for outcome in outcomes):
        guard += ", but a password"
    succeeded = [outcome for outcome in outcomes if outcome.fate is Fate.SUCCEEDED]
    unseen = [outcome for outcome in outcomes if outcome.fate is Fate.UNSEEN]
    status = CheckStatus.FAIL if succeeded else CheckStatus.UNKNOWN if unseen else CheckStatus.PASS
    dropped = sum(outcome.dropped for outcome in outcomes)
    if succeeded:
        detail = f"succeeded at {len(succeeded)} of {len(outcomes)} ports; {guard}"
    elif unseen:
        detail = f"neither arrived nor was counted at {len(unseen)} of {len(outcomes)} ports; {guard}"
    else:
        detail = f"stopped at {len(outcomes)} ports, {dropped} packets dropped; {guard}"
    return CheckResult(
        name=f"{attack.name}, {network}",
        status=status,
        count=len(outcomes),
        detail=detail,
        failures=_where([*succeeded, *unseen]),
    )
