"""A live test of scale-up domains: data crosses every link, and all credits are where they were afterwards.

GPUs have no end of their links between runs, so that this opens one for each and writes from each GPU to the next one
over all planes. Where a worker or a tool has its ends open, the links are its own: then nothing is sent, and only what
the switch says of its links is told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace, in_namespace
from testbed.base.names import namespace_name
from testbed.daemons.switchd.errors import SwitchError, SwitchMissing
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckResult, CheckStatus, judge
from testbed.lab.core.model import ScaleUpFlowControl
from testbed.lab.core.plan.domain_plan import DomainPlan
from testbed.lab.features.scale_up.apply import gpu_settings
from testbed.lab.features.scale_up.links import ScaleUpLink, list_links
from testbed.lab.features.scale_up.watch_switches import dead_domains, dead_line, domain_switch, revival_hint
from testbed.protocols.scale_up.cyclic import distance
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.binding import REGION_BYTES
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Endpoints, Spray
from testbed.protocols.scale_up.domain.errors import ScaleUpError
from testbed.protocols.scale_up.frames import ETHERTYPE

SCALE_UP = "scale-up"
"""The name of the network of scale-up domains in reports, beside those that the topology names."""
FRAMES_OF_LINK = 2
"""That each GPU sends by each of its links."""
PATIENCE_S = 5.0
PATIENCE_ROUND_TRIPS = 20
_LOOK_S = 0.02


@dataclass(slots=True)
class PlaneTest:
    """The result of a test: `links` were looked at, `failures` are lines for a person, `busy` domains had their ends
    open."""

    links: int
    failures: list[str]
    busy: list[str]


def probe_planes(lab: RunningLab) -> PlaneTest:
    """Test all links of all domains whose switch runs; domains whose switch does not run have a test of their own."""
    found = PlaneTest(links=0, failures=[], busy=[])
    links: dict[str, dict[tuple[int, int], ScaleUpLink]] = {}
    for link in list_links(lab.whole.model):
        links.setdefault(link.domain, {})[link.gpu, link.plane] = link
    for domain in lab.plan.scale_up_domains:
        switch = domain_switch(lab.state.run_directory(lab.name), domain.name)
        try:
            ports = switch.status()["ports"]
        except SwitchMissing:
            continue
        found.links += len(domain.wires)
        bad = dict(_changed(ports, links[domain.name]))
        if _in_use(lab, domain):
            found.busy.append(domain.name)
        elif domain.ends > 1:  # one alone has nobody to write to
            with Endpoints(scale_up_domain.build()) as endpoints:
                gpus = [_open(lab, endpoints, wire.host, wire.local_gpu) for wire in domain.wires[: domain.ends]]
                bad |= _Domain(domain, links[domain.name], endpoints, gpus).test(switch.status, set(bad))
        found.failures += [bad[place] for place in sorted(bad)]
    return found


def _changed(
    ports: Sequence[Mapping[str, Any]], links: Mapping[tuple[int, int], ScaleUpLink]
) -> Iterator[tuple[tuple[int, int], str]]:
    """Links that were taken down or silenced, by `link down` or a fault."""
    for port in ports:
        link = links[port["gpu"], port["plane"] + 1]
        for state in ("down", "silent"):
            if port["errors"][state]:
                yield (link.gpu, link.plane), f"{link.name} is {state}: `testbed link reset {link.name}` undoes it"


def _in_use(lab: RunningLab, domain: DomainPlan) -> bool:
    """Tell whether a process has a socket for frames of the domain at any of its GPUs' interfaces."""

    def read() -> bool:
        for host in dict.fromkeys(wire.host for wire in domain.wires):
            enter_namespace(namespace_name(lab.name, host))
            indexes = {str(wire.ifindex) for wire in domain.wires if wire.host == host}
            rows = Path("/proc/thread-self/net/packet").read_text().splitlines()[1:]
            # columns: sk RefCnt Type Proto Iface R Rmem User Inode
            if any(row.split()[4] in indexes and int(row.split()[3], 16) == ETHERTYPE for row in rows):
                return True
        return False

    return syscalls.in_thread(read)


def _open(lab: RunningLab, endpoints: Endpoints, host: str, local_gpu: int) -> Endpoint:
    settings = gpu_settings(lab.plan, host, local_gpu, lab.processes_directory)
    settings = replace(settings, spray=Spray.EQUAL)  # all planes have their share, whatever the lab's do
    return in_namespace(lab.namespace(host), lambda: endpoints.add(settings))


class _Domain:
    """The test of one domain, with the ends of all its GPUs."""

    def __init__(
        self,
        domain: DomainPlan,
        links: Mapping[tuple[int, int], ScaleUpLink],
        endpoints: Endpoints,
        gpus: Sequence[Endpoint],
    ) -> None:
        self._domain = domain
        self._links = links
        self._endpoints = endpoints
        self._gpus = gpus
        self._patience_s = max(PATIENCE_S, PATIENCE_ROUND_TRIPS * domain.links[0].rtt.seconds)

    def test(self, status: Any, known: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Find what is wrong with links beside those that are `known`, by GPU and plane."""
        bad = self._write(known)
        deadline = time.monotonic() + self._patience_s
        while wrong := dict(self._uncounted(status()["ports"], known | set(bad))):
            if time.monotonic() > deadline:
                break
            self._endpoints.run(_LOOK_S)
        return bad | wrong

    def _write(self, known: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """Write from each GPU to the next one by all planes."""
        planes, count = self._domain.planes, len(self._gpus)
        size = FRAMES_OF_LINK * planes * self._gpus[0].settings.link.coarse * REGION_BYTES
        memory = [bytearray(size) for _ in self._gpus]
        data = [os.urandom(size) for _ in self._gpus]
        windows = [gpu.export(part) for gpu, part in zip(self._gpus, memory, strict=True)]
        deadline = time.monotonic() + self._patience_s
        while self._silent(known) and time.monotonic() < deadline:
            self._endpoints.run(_LOOK_S)
        bad = {place: f"{self._links[place].name}: no frame comes by it" for place in self._silent(known)}
        for number, gpu in enumerate(self._gpus):
            window = windows[(number + 1) % count]
            window.authorise(gpu.gpu)
            try:
                handle = gpu.write(window.reference(), data[number])
                self._endpoints.wait(gpu, handle, self._patience_s)
            except (ScaleUpError, TimeoutError) as error:
                if any(place[0] in (gpu.gpu, (gpu.gpu + 1) % count) for place in known):
                    continue  # one of the two has a link that is known to be down
                name = self._links[gpu.gpu, 1].gpu_name
                bad.setdefault((gpu.gpu, 0), f"{name}: cannot write to the next GPU: {error}")
            else:
                if memory[(number + 1) % count] != data[number]:
                    bad[gpu.gpu, 0] = f"{self._links[gpu.gpu, 1].gpu_name}: other bytes arrive than it writes"
        return bad

    def _silent(self, known: set[tuple[int, int]]) -> list[tuple[int, int]]:
        """Links by which a GPU has heard nothing of the switch."""
        return [
            (gpu.gpu, plane)
            for gpu in self._gpus
            for plane, counted in enumerate(gpu.counters()["planes"], 1)
            if not counted["control_rx"] and (gpu.gpu, plane) not in known
        ]

    def _uncounted(
        self, ports: Sequence[Mapping[str, Any]], known: set[tuple[int, int]]
    ) -> Iterator[tuple[tuple[int, int], str]]:
        """Links that carried nothing, and those whose credits are not whole.

        At rest all credits are free (S_CC = S_CF, R_CC = R_CF), and what a sender has consumed is what its receiver
        has counted, with what leaked and was given back (S_CC = R_CC).
        """
        by_gpu = {gpu.gpu: gpu.counters()["planes"] for gpu in self._gpus}
        for port in ports:
            place = port["gpu"], port["plane"] + 1
            if place in known:
                continue
            name, here = self._links[place].name, by_gpu[port["gpu"]][port["plane"]]
            if not sum(vc["rx_frames"] for vc in port["vcs"]):
                yield place, f"{name} has carried nothing"
                continue
            for vc, (ours, theirs) in enumerate(zip(here["vcs"], port["vcs"], strict=True)):
                for sender, receiver, way in ((ours, theirs, "from"), (theirs, ours, "to")):
                    if line := _incomplete(sender, receiver):
                        yield place, f"{name}: {way} the GPU, VC {vc}: {line}"


def _incomplete(sender: Mapping[str, int], receiver: Mapping[str, int]) -> str:
    """Say what is wrong with the credits of one direction of a channel at rest; "" where they are whole."""
    used = distance(sender["s_cf"], sender["s_cc"])
    missing = distance(receiver["r_cc"], sender["s_cc"])
    if missing:
        return f"S_CC {sender['s_cc']} and R_CC {receiver['r_cc']}: {missing} credits have leaked"
    return f"{used} credits are in use and no frame is under way" if used else ""


def check_switches(lab: RunningLab) -> CheckResult:
    """Every switch answers when it is asked, and has all of its ports."""
    run = lab.state.run_directory(lab.name)
    dead = dead_domains(lab.plan, run)
    failures = [f"{dead_line(name)}; {revival_hint(name)}" for name in dead]
    for domain in lab.plan.scale_up_domains:
        if domain.name in dead:
            continue
        try:
            ports = len(domain_switch(run, domain.name).status()["ports"])
        except SwitchError as error:
            failures.append(f"scale-up domain {domain.name}: {error.message}")
            continue
        if ports != len(domain.wires):
            failures.append(f"scale-up domain {domain.name}: its switch has {ports} of {len(domain.wires)} ports")
    return judge(len(lab.plan.scale_up_domains), "scale-up domains switch", failures)


def check_planes(lab: RunningLab) -> CheckResult:
    """Data crosses every link of every domain, and all credits come back."""
    found = probe_planes(lab)
    if not found.links:
        why = "no switch runs, so no link was tested"
        return CheckResult(name="", status=CheckStatus.UNKNOWN, count=0, detail=why)
    with_credits = lab.model.scale_up.flow_control is ScaleUpFlowControl.CREDITS
    what = "links of GPUs to planes up, their credits whole," if with_credits else "links of GPUs to planes up"
    if found.busy:
        what = f"links up as their switches say ({', '.join(found.busy)}: in use, so nothing was sent),"
    return judge(found.links, what, found.failures, {SCALE_UP: found.links})
