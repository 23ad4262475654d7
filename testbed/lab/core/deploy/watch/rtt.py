"""The base RTT of a live lab: modelled from the topology, and achieved by probes through idle queues.

One or two NIC pairs stand for each class of paths (as many switches, the same rates and delays). The least of some
paced round trips counts. What endpoints delay is not in it, because probes come from the kernel's UDP: it is added
for comparing with the model, and shown.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from testbed.base.errors import ExitCode, PlanError
from testbed.lab.core.deploy.links.changes import ports_now
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckStatus
from testbed.lab.core.deploy.watch.probe import Probe, Prober, nic_text
from testbed.lab.core.model import DelayBy, Lab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import PathModel, WirePaths

PROBES = 30
PACE_S = 0.002
PROBE_BYTES = 64
"""At the IP layer."""
FRAME_BYTES = PROBE_BYTES + 14
PAIRS_PER_CLASS = 2
SOURCES = 4
HOP_TOLERANCE_NS = 50_000
"""The time that the machine may take for each link on the way, each way: forwarding, and waking a process up."""
TOLERANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRtt:
    """One class of paths. Times in lab time; `achieved_ns` is None where no probe came back.

    `modelled_ns` has the delays by whoever realises them, and the sending of the probe at every port.
    `endpoint_ns` is the part of it that only our own transports see, there and back.
    """

    a: str
    b: str
    switches: int
    delay_by: str
    modelled_ns: int
    endpoint_ns: int
    achieved_ns: int | None
    probes: int
    lost: int
    status: CheckStatus
    detail: str

    @property
    def compared_ns(self) -> int | None:
        """Return what compares with the model: achieved, and the endpoints' delay on top."""
        return None if self.achieved_ns is None else self.achieved_ns + self.endpoint_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class RttReport:
    """All classes of paths, shortest first. `k` is the time scale: real time is lab time over k."""

    lab: str
    k: float
    paths: tuple[PathRtt, ...]

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 cannot say."""
        statuses = {path.status for path in self.paths}
        if CheckStatus.FAIL in statuses:
            return ExitCode.FAIL
        return ExitCode.PASS if statuses == {CheckStatus.PASS} else ExitCode.INVALID


def measure_rtt(lab: RunningLab, *, probes: int = PROBES) -> RttReport:
    """Probe each class of paths; takes about 0.1 s for each. The lab should be idle. Raises `DriverError`.

    Paths are those between NICs of one tenant, or of none.
    """
    nics = [nic for host in lab.plan.hosts for nic in host.nics if nic.address is not None]
    paths = WirePaths(ports_now(lab), lab.hosts)
    results = [
        _worst([_measure(lab, paths.path(a.wire, b.wire), a, b, probes) for a, b in pairs])
        for pairs in choose_pairs(lab.model, nics, paths)
    ]
    return RttReport(
        lab=lab.name, k=lab.record.k, paths=tuple(sorted(results, key=lambda item: (item.switches, item.modelled_ns)))
    )


def choose_pairs(lab: Lab, nics: Sequence[PortPlan], paths: WirePaths) -> list[list[tuple[PortPlan, PortPlan]]]:
    """Choose for every class of paths up to `PAIRS_PER_CLASS` pairs of NICs of different hosts that can talk."""
    classes: dict[PathModel, list[tuple[PortPlan, PortPlan]]] = defaultdict(list)
    for a, b in _candidates(lab, nics):
        try:
            model = paths.path(a.wire, b.wire)
        except PlanError:
            continue  # planes that do not meet
        if len(classes[model]) < PAIRS_PER_CLASS:
            classes[model].append((a, b))
    return list(classes.values())


def _candidates(lab: Lab, nics: Sequence[PortPlan]) -> Iterator[tuple[PortPlan, PortPlan]]:
    """From a few NICs to one or two of every subnet: what is between them covers a regular fabric's paths."""
    subnets: dict[str, dict[str, list[PortPlan]]] = defaultdict(lambda: defaultdict(list))
    for nic in nics:
        assert nic.address is not None
        subnets[nic.tenant][str(nic.address.network)].append(nic)
    for a in _spread([nic for nic in nics if not nic.tenant]) + _spread([nic for nic in nics if nic.tenant]):
        for members in subnets[a.tenant].values():
            for b in [nic for nic in members if nic.node != a.node][:2]:
                if not lab.isolated_rails or a.rail == b.rail:
                    yield a, b


def _spread(nics: Sequence[PortPlan]) -> list[PortPlan]:
    """A few of them, evenly chosen."""
    step = max(1, len(nics) // SOURCES)
    return list(nics[::step][:SOURCES])


def _measure(lab: RunningLab, model: PathModel, a: PortPlan, b: PortPlan, probes: int) -> PathRtt:
    times: list[int] = []
    with closing(Prober(lab.name, [a, b])) as prober:
        timeout_s = 1.0 + 4 * model.delay_ns / 1e9
        prober.round_trip_ns(Probe(source=a, target=b, size_bytes=PROBE_BYTES), timeout_s)  # ARP, caches
        next_at = time.monotonic()
        for _ in range(probes):
            time.sleep(max(0.0, next_at - time.monotonic()))
            next_at = time.monotonic() + PACE_S
            taken = prober.round_trip_ns(Probe(source=a, target=b, size_bytes=PROBE_BYTES), timeout_s)
            if taken is not None:
                times.append(taken)
    achieved = min(times, default=None)
    modelled = model.base_rtt_ns(FRAME_BYTES)
    status, detail = judge_rtt(model, achieved)
    by = {DelayBy.KERNEL.value: model.kernel_ns, DelayBy.ENDPOINT.value: model.endpoint_ns}
    return PathRtt(
        a=nic_text(a),
        b=nic_text(b),
        switches=model.switches,
        delay_by="+".join(name for name, delay_ns in by.items() if delay_ns) or "none",
        modelled_ns=modelled,
        endpoint_ns=2 * model.endpoint_ns,
        achieved_ns=achieved,
        probes=probes,
        lost=probes - len(times),
        status=status,
        detail=detail,
    )


def judge_rtt(model: PathModel, achieved_ns: int | None) -> tuple[CheckStatus, str]:
    """Tell whether a path's achieved round trip is the modelled one, and if not, why.

    Shorter than the kernel's delays is a failure: they do not act. Longer than the model and what the machine may
    take is the machine's doing, and the lab's base RTT cannot be said to be the declared one.
    """
    if achieved_ns is None:
        return CheckStatus.FAIL, "no probe came back"
    # Of equal-cost paths with different delays, the probe may have taken the shortest.
    least_ns = 2 * max(0, model.least_ns - model.endpoint_ns)
    if achieved_ns < least_ns * (1 - TOLERANCE):
        return CheckStatus.FAIL, "shorter than the delay that the kernel should add"
    compared_ns = achieved_ns + 2 * model.endpoint_ns
    modelled_ns = model.base_rtt_ns(FRAME_BYTES)
    links = 2 * (model.switches + 1)
    most_ns = max(modelled_ns * (1 + TOLERANCE), modelled_ns + links * HOP_TOLERANCE_NS)
    if compared_ns > most_ns:
        return CheckStatus.UNKNOWN, "the machine adds more than the model allows: busy, or k is too small for it"
    return CheckStatus.PASS, ""


def _worst(results: Sequence[PathRtt]) -> PathRtt:
    order = {CheckStatus.FAIL: 2, CheckStatus.UNKNOWN: 1, CheckStatus.PASS: 0}
    return max(results, key=lambda item: (order[item.status], item.achieved_ns or 0))
