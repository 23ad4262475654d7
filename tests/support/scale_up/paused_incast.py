"""One incast with a victim under PFC, through the two implementations there are: ports of the kernel that the pause
agent closes, as rails have them, and the switch of a scale-up domain.

    1 --\\
    2 --- switch --- z      1, 2 and 3 send to z; 1 sends as much to v, a frame to each in turn
    3 --/        \\-- v

All links have one rate. Frames have one length on both, down to the byte, and the thresholds are the same bytes. Both
account for a frame at the input that it came by and queue it for its output, so that nothing waits behind a frame for
another output (VOQ).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domain_lab import domain_lab
from steady_rates import lend, open_gpus, serve
from switch_ports import RDMA, PortLab, port_lab

from testbed.protocols.scale_up.domain.binding import OVERHEAD_BYTES, REGION_BYTES
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings

RATE_BPS = 20_000_000
COARSE = 6
PAYLOAD_BYTES = COARSE * REGION_BYTES
FRAME_BYTES = PAYLOAD_BYTES + OVERHEAD_BYTES
IP_BYTES = FRAME_BYTES - 14
UDP_BYTES = IP_BYTES - 28
SENDERS = 3
FRAMES = 600
"""The frames of each flow."""
IDEAL_S = SENDERS * FRAMES * FRAME_BYTES * 8 / RATE_BPS
"""The time that the receiver's link needs for the incast."""

_TOPOLOGY = """
name: {name}
scale: {time: 1}
fabric: {mtu: IP_BYTES, routing: {bfd: off}}
qos:
  classes:
    rdma: {dscp: [26], lossless: true, weight: 50, ecn: false, pfc: {xoff: XOFF, xon: XON, headroom: HEADROOM}}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 50}
  watchdog: false
topology:
  nodes:
    s1: {kind: switch, role: rail}
    h1: {kind: host}
    h2: {kind: host}
    h3: {kind: host}
    v1: {kind: host}
    z1: {kind: host}
  links:
    - {endpoints: ["h1:eth1", "s1:eth1"], rate: 20M}
    - {endpoints: ["h2:eth1", "s1:eth2"], rate: 20M}
    - {endpoints: ["h3:eth1", "s1:eth3"], rate: 20M}
    - {endpoints: ["v1:eth1", "s1:eth4"], rate: 20M}
    - {endpoints: ["z1:eth1", "s1:eth5"], rate: 20M}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The thresholds of an input buffer, in frames."""

    xoff: int = 24
    xon: int = 12
    headroom: int = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Incast:
    """The outcome. Senders stand in order, the first is the one with two flows."""

    took_s: float
    """Until the last frame was at z."""
    victim_share: float
    """The victim's goodput over the link's rate."""
    shares: tuple[float, ...]
    """Each sender's goodput to z over the link's rate."""
    waited: tuple[float, ...]
    """The share of `took_s` that each sender was paused with frames to send."""
    deepest_frames: float
    """The most that an input of the switch held."""
    dropped: int

    def __str__(self) -> str:
        listed = [" ".join(f"{one:.3f}" for one in many) for many in (self.shares, self.waited)]
        return (
            f"{self.took_s / IDEAL_S:.3f} of the ideal time, goodput {listed[0]}, victim {self.victim_share:.3f},"
            f" paused {listed[1]}, deepest {self.deepest_frames:.1f} frames, {self.dropped} dropped"
        )


TIME_BAND = 0.06
"""The deviation of the time that is tolerated, as a fraction."""
GOODPUT_BAND = 0.05
PAUSE_BAND = 0.13
"""A port of the kernel sends a few frames at once when a pause ends (the bucket of its shaper), and by then was paused
for the time that they would have taken: 0.09 more of the sender with two flows."""
BUFFER_BAND_FRAMES = 6
"""The bytes that arrive until a pause is in force depend on how soon the processes are run."""


def differences(one: Incast, other: Incast) -> list[str]:
    """In what the two part by more than they may."""
    found = []
    if abs(one.took_s / other.took_s - 1) > TIME_BAND:
        found.append("completion time")
    if max(abs(a - b) for a, b in zip(one.shares, other.shares, strict=True)) > GOODPUT_BAND:
        found.append("goodput shares")
    if abs(one.victim_share - other.victim_share) > GOODPUT_BAND:
        found.append("victim")
    if max(abs(a - b) for a, b in zip(one.waited, other.waited, strict=True)) > PAUSE_BAND:
        found.append("pause share")
    if abs(one.deepest_frames - other.deepest_frames) > BUFFER_BAND_FRAMES:
        found.append("largest buffer")
    if bool(one.dropped) != bool(other.dropped):
        found.append("drops")
    return found


# ------------------------------------------------------------------ ports of the kernel


def through_ports(box: Any, thresholds: Thresholds) -> Incast:
    words = {"XOFF": thresholds.xoff, "XON": thresholds.xon, "HEADROOM": thresholds.headroom}
    text = _TOPOLOGY.replace("IP_BYTES", str(IP_BYTES))
    for name, frames in words.items():
        text = text.replace(name, f"{frames * FRAME_BYTES}B")
    with port_lab(box, text) as lab:
        return _run_ports(lab)


def _run_ports(lab: PortLab) -> Incast:
    payload = bytes(UDP_BYTES)
    ended: dict[str, float] = {}
    arrived: dict[int, list[float]] = {number: [] for number in range(1, SENDERS + 1)}
    problems: list[BaseException] = []

    def send(number: int) -> None:
        try:
            with lab.sender(f"h{number}", "z1", RDMA) as incast, lab.sender(f"h{number}", "v1", RDMA) as other:
                start.wait()
                for _ in range(FRAMES):
                    incast.send(bytes([number]) + payload[1:])
                    if number == 1:
                        other.send(payload)
        except BaseException as error:
            problems.append(error)

    def receive(node: str, frames: int) -> None:
        try:
            with lab.sink(node) as sink:
                sink.settimeout(10.0)
                start.wait()
                for _ in range(frames):
                    data, now = sink.recv(UDP_BYTES), time.monotonic()
                    if node == "z1":
                        arrived[data[0]].append(now)
                ended[node] = now
        except BaseException as error:
            problems.append(error)

    before = lab.pauses[:, RDMA]["paused_ns"].copy()
    drops = _drops(lab)
    lab.reset_maxima()
    start = threading.Barrier(SENDERS + 3)
    threads = [threading.Thread(target=send, args=(number,)) for number in range(1, SENDERS + 1)]
    threads += [threading.Thread(target=receive, args=args) for args in (("z1", SENDERS * FRAMES), ("v1", FRAMES))]
    for thread in threads:
        thread.start()
    start.wait(10.0)
    begun = time.monotonic()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    lab.calm()
    took_s = ended["z1"] - begun
    paused = lab.pauses[:, RDMA]["paused_ns"] - before
    bits = FRAMES * FRAME_BYTES * 8
    return Incast(
        took_s=took_s,
        victim_share=bits / (ended["v1"] - begun) / RATE_BPS,
        shares=tuple(bits / (arrived[number][-1] - begun) / RATE_BPS for number in sorted(arrived)),
        waited=tuple(
            float(paused[lab.number(f"h{number}", "eth1")]) / 1e9 / took_s for number in range(1, SENDERS + 1)
        ),
        deepest_frames=max(
            int(lab.account("s1", f"eth{number}", RDMA)["max_bytes"]) / FRAME_BYTES for number in range(1, SENDERS + 1)
        ),
        dropped=_drops(lab) - drops,
    )


def _drops(lab: PortLab) -> int:
    queues = lab.queues[:, RDMA]
    return sum(int(queues[f"{cause}_packets"].sum()) for cause in ("tail", "buffer", "wred", "headroom"))


# ------------------------------------------------------------------ the switch of a domain


def through_domain(directory: Path, thresholds: Thresholds, flow_control: FlowControl = FlowControl.PFC) -> Incast:
    """GPU 0 is z, the senders are GPUs from 1 on, and the last is v. A credit is a frame; channel 1 has the answers."""
    link = LinkSettings(
        rate_bps=RATE_BPS,
        flow_control=flow_control,
        coarse=COARSE,
        unit_bytes=FRAME_BYTES,
        capacity=(thresholds.xoff + thresholds.headroom, 2000),
        xoff=(thresholds.xoff, 1000),
        xon=(thresholds.xon, 500),
    )
    size = FRAMES * PAYLOAD_BYTES
    with domain_lab(directory, link, gpus=SENDERS + 2, planes=1, voq=True, name="cr") as lab:
        target, *sources, other = open_gpus(lab, SENDERS + 2, timeout_s=0.5)
        windows = [lend(target, source) for source in sources]
        aside = lend(other, sources[0])
        data = memoryview(bytes(size))
        handles = [source.write(window, data) for source, window in zip(sources, windows, strict=True)]
        handles.append(sources[0].write(aside, data))
        begun = time.monotonic()
        done: dict[tuple[int, int], Any] = {}
        while len(done) < len(handles) and time.monotonic() < begun + 10 * IDEAL_S:
            serve(lab, 0.02)
            done |= {(source.gpu, item.handle): item for source in sources for item in source.completions()}
        ports = lab.switch.status()["ports"]
        waits = [source.counters()["planes"][0]["vcs"][0]["xmit_wait_ns"] / 1e9 for source in sources]
    took = [
        (item.ended_ns - item.begun_ns) / 1e9
        for item in (
            done[key] for key in (*((s.gpu, h) for s, h in zip(sources, handles, strict=False)), (1, handles[-1]))
        )
    ]
    took_s = max(took[:-1])
    shares = [size / PAYLOAD_BYTES * FRAME_BYTES * 8 / one / RATE_BPS for one in took]
    return Incast(
        took_s=took_s,
        victim_share=shares[-1],
        shares=tuple(shares[:-1]),
        waited=tuple(one / took_s for one in waits),
        deepest_frames=max(port["vcs"][0]["deepest"] for port in ports),
        dropped=sum(port["vcs"][0]["dropped_frames"] for port in ports),
    )
