"""Switch ports against what was promised: rates, marking, weights, lossless classes, load balancing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from figures import FIGURES, MOST_LATE_MS, Figure, doubt_of, judge
from port_lab import PIPES, PortLab, busy_cores, deployed, finish

from testbed.run.machine.canary import Canary, Lateness

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(600)]

BULK, RDMA, CONTROL = 0, 3, 6
DSCP = {BULK: 0, RDMA: 26, CONTROL: 48}
ECT0 = 2
HEAD = """
name: {name}
scale: {{time: 1}}
fabric: {{mtu: 1500, routing: {{bfd: off}}}}
"""
FAN_OUT = (
    HEAD
    + """
qos:
  classes:
    rdma: {{dscp: [26], weight: 60, ecn: {{kmin: 30kB, kmax: 90kB, pmax: 0.8}}}}
    control: {{dscp: [48], strict: true}}
    bulk: {{default: true, weight: 40, limit: 120kB}}
  watchdog: false
  ports: {ports}
topology:
  nodes:
    s1: {{kind: switch, role: rail}}
    h0: {{kind: host}}
{hosts}
  links:
    - {{endpoints: ["h0:eth1", "s1:eth100"], rate: 2G}}
{links}
"""
)


def fan_out(name: str, rates: Sequence[str], limits: Sequence[int] = ()) -> str:
    """A fast host h0 and slow ones h1, h2, ... on one switch."""
    numbers = range(1, len(rates) + 1)
    ports = {
        f"s1:eth{number}": {"classes": {"rdma": {"limit": f"{limit}B"}}}
        for number, limit in zip(numbers, limits, strict=False)
    }
    return FAN_OUT.format(
        name=name,
        ports=str(ports).replace("'", '"'),
        hosts="\n".join(f"    h{number}: {{kind: host}}" for number in numbers),
        links="\n".join(
            f'    - {{endpoints: ["h{number}:eth1", "s1:eth{number}"], rate: {rate}}}'
            for number, rate in zip(numbers, rates, strict=True)
        ),
    )


def test_rates_and_weights(tmp_path: Path) -> None:
    rates = {"1M": 1e6, "10M": 10e6, "50M": 50e6, "100M": 100e6, "500M": 500e6}
    with deployed(fan_out("benchrate", list(rates)), tmp_path) as lab:
        for number, (text, rate) in enumerate(rates.items(), 1):
            node = f"h{number}"
            with lab.sink(node):
                # More than its share from each, so that both classes are backlogged, and no more: the line's rate from
                # both is more than two processes can send at the highest rate.
                senders = [
                    lab.send("h0", lab.address(node), dscp=DSCP[item], rate_bps=1.4 * share * rate, seconds=5)
                    for item, share in ((BULK, 0.4), (RDMA, 0.6))
                ]
                time.sleep(1)  # until the queues have filled
                port = lab.number("s1", f"eth{number}")
                before = lab.queues["tail_packets"][port].copy()
                sent = lab.rates_bps(port, 3)
                full = lab.queues["tail_packets"][port] > before
                finish(senders)
            limit = 3.0 if rate > 100e6 else 1.0
            share = sent[RDMA] / (sent[BULK] + sent[RDMA]) * 100
            doubt = "" if full[BULK] and full[RDMA] else "the senders could not fill both classes"
            judge(
                Figure(
                    f"rate {text}: deviation", abs(sum(sent) / rate - 1) * 100, at_most=limit, unit="%", doubt=doubt
                ),
                Figure(f"rate {text}: weights 60:40, deviation", abs(share - 60), at_most=2, unit="pp", doubt=doubt),
            )


def test_strict_priority(tmp_path: Path) -> None:
    with deployed(fan_out("benchstrict", ["50M"]), tmp_path) as lab, lab.sink("h1"):
        target = lab.address("h1")
        senders = [lab.send("h0", target, dscp=DSCP[item], rate_bps=50e6, seconds=5) for item in (BULK, RDMA)]
        senders.append(lab.send("h0", target, dscp=DSCP[CONTROL], rate_bps=10e6, seconds=5))
        time.sleep(1)
        port = lab.number("s1", "eth1")
        sent = lab.rates_bps(port, 3)
        finish(senders)
        queue = lab.queues[port, CONTROL]
        judge(
            Figure(
                "strict class under saturation: share of what it offered",
                sent[CONTROL] / 10e6,
                at_least=0.99,
                unit="x",
                ratio=True,
            ),
            Figure(
                "strict class: its deepest queue, of the others'",
                queue["max_bytes"] / lab.queues["max_bytes"][port, RDMA],
                at_most=0.25,
                unit="x",
                ratio=True,
            ),
        )
        assert queue["tail_packets"] == queue["buffer_packets"] == 0


def test_marking_probability(tmp_path: Path) -> None:
    """A queue in overload stands at its limit, so each port shows one depth of the curve."""
    kmin, kmax, pmax, frame = 30_000, 90_000, 0.8, 1514
    depths = [25_000, 40_000, 50_000, 60_000, 75_000, 88_000, 110_000]
    with deployed(fan_out("benchmark", ["20M"] * len(depths), depths), tmp_path) as lab:
        for number, depth in enumerate(depths, 1):
            node, port = f"h{number}", lab.number("s1", f"eth{number}")
            with lab.sink(node):
                sender = lab.send("h0", lab.address(node), dscp=DSCP[RDMA], rate_bps=26e6, seconds=6, ecn=ECT0)
                time.sleep(1)
                before = lab.queues[port, RDMA].copy()
                time.sleep(4)
                after = lab.queues[port, RDMA].copy()
                finish([sender])
            accepted = int(after["enqueued_packets"] - before["enqueued_packets"])
            marked = int(after["ce_packets"] - before["ce_packets"])
            assert int(after["tail_packets"] - before["tail_packets"]) > accepted / 10, "the queue was not full"
            found = depth // frame * frame - frame  # what an accepted packet finds
            wanted = 0.0 if found <= kmin else 1.0 if found >= kmax else pmax * (found - kmin) / (kmax - kmin)
            exact = wanted in (0.0, 1.0)
            judge(
                Figure(
                    f"marking at {found} bytes, {wanted:.1%} by the curve: deviation",
                    abs(marked / accepted - wanted) * 100,
                    at_most=0 if exact else 3,
                    unit="pp",
                    ratio=True,
                )
            )


LOSSLESS = (
    HEAD
    + """
qos:
  classes:
    rdma: {{dscp: [26], lossless: true, weight: 60, ecn: {ecn}, pfc: {{xoff: 60kB, xon: 45kB}}}}
    control: {{dscp: [48], strict: true}}
    bulk: {{default: true, weight: 40, limit: 60kB, ecn: false}}
  watchdog: false
topology:
  nodes:
    s1: {{kind: switch, role: rail}}
    s2: {{kind: switch, role: spine}}
    z1: {{kind: host}}
    z2: {{kind: host}}
{hosts}
  links:
    - {{endpoints: ["s1:eth100", "s2:eth100"], rate: 400M}}
    - {{endpoints: ["z1:eth1", "s2:eth1"], rate: 50M}}
    - {{endpoints: ["z2:eth1", "s2:eth2"], rate: 50M}}
{links}
"""
)


def lossless(name: str, senders: int, *, ecn: str = "false") -> str:
    """Senders h1... on s1, receivers z1 and z2 behind s2."""
    return LOSSLESS.format(
        name=name,
        ecn=ecn,
        hosts="\n".join(f"    h{number}: {{kind: host}}" for number in range(1, senders + 1)),
        links="\n".join(
            f'    - {{endpoints: ["h{number}:eth1", "s1:eth{number}"], rate: 50M}}' for number in range(1, senders + 1)
        ),
    )


def doubt_about(lab: PortLab, late: Lateness | None) -> str:
    """Why what its lossless classes did is not to be trusted; "" where it is."""
    qos = lab.running.plan.qos
    assert late is not None and qos is not None
    return doubt_of(late, qos.reaction_ns)


@pytest.mark.parametrize("saturated", [False, True], ids=["idle", "saturated"])
@pytest.mark.parametrize("senders", [2, pytest.param(8, marks=pytest.mark.thorough)])
def test_overload_into_a_lossless_class(tmp_path: Path, senders: int, saturated: bool) -> None:
    seconds, case = 10, f"{senders}:1{', both cores saturated' if saturated else ''}"
    with (
        deployed(lossless(f"benchpfc{senders}", senders), tmp_path) as lab,
        lab.sink("z1"),
        busy_cores(2) if saturated else nullcontext(),
        Canary() as canary,
    ):
        lab.running.pause_agent.reset()
        flows = [
            lab.send(f"h{number}", lab.address("z1"), dscp=DSCP[RDMA], rate_bps=50e6, seconds=seconds)
            for number in range(1, senders + 1)
        ]
        time.sleep(1)
        sent = lab.rates_bps(lab.number("s2", "eth1"), seconds - 2)
        finish(flows)
        late = canary.read()
        assert late is not None
        overshoot = lab.overshoot(RDMA)
        reaction = lab.running.pause_agent.status().labs[lab.running.name].reaction
        qos = lab.running.plan.qos
        trusted, planned_ms = reaction.max_ns <= qos.reaction_ns, qos.reaction_ns / 1e6
        hosts = [lab.number(f"h{number}", "eth1") for number in range(1, senders + 1)]
        doubt = doubt_about(lab, late)
        figures = [
            Figure(f"{case}: lossless drops", lab.lossless_drops(RDMA), at_most=0, ratio=True, doubt=doubt),
            Figure(
                f"{case}: throughput of the bottleneck",
                sent[RDMA] / 50e6 * 100,
                at_least=97,
                unit="%",
                ratio=True,
                doubt=doubt,
            ),
            Figure(
                f"{case}: overshoot above XOFF, of the headroom",
                overshoot,
                at_most=1,
                unit="x",
                ratio=True,
                doubt=doubt,
            ),
        ]
        # Of the machine, not of us: shown, because the next figure cannot be better.
        FIGURES.append(
            Figure(
                f"{case}: a real-time thread wakes late, p99 (once {late.max_ns / 1e6:.2g} ms)",
                late.p99_ns / 1e6,
                at_most=MOST_LATE_MS,
                unit="ms",
            )
        )
        judge(
            Figure(
                f"{case}: pause reaction p99 ({reaction.count} pauses)",
                reaction.p99_ns / 1e6,
                at_most=1,
                unit="ms",
                doubt=doubt,
            )
        )
        if not trusted and saturated:
            # Something else had the machine for longer than headroom is planned for, and the run says so.
            FIGURES.extend(figures)
            print(f"{case}: not to be trusted: a pause took {reaction.max_ns / 1e6:.1f} of {planned_ms:.1f} ms")
            return
        judge(*figures)
        assert overshoot > 0 and (lab.pauses["xoff_received"][hosts, RDMA] > 0).all(), "the hosts were not paused"


def test_another_class_keeps_its_share(tmp_path: Path) -> None:
    with deployed(lossless("benchshare", 2), tmp_path) as lab, lab.sink("z1"), Canary() as canary:
        flows = [
            lab.send(node, lab.address("z1"), dscp=DSCP[item], rate_bps=45e6, seconds=8)
            for node in ("h1", "h2")
            for item in (RDMA, BULK)
        ]
        time.sleep(2)
        sent = lab.rates_bps(lab.number("s2", "eth1"), 5)
        finish(flows)
        judge(
            Figure(
                "bulk (40 %) beside a paused lossless class: of its share",
                sent[BULK] / (0.4 * 50e6),
                at_least=0.95,
                unit="x",
                ratio=True,
            ),
            Figure(
                "the lossless class beside it: drops",
                lab.lossless_drops(RDMA),
                at_most=0,
                ratio=True,
                doubt=doubt_about(lab, canary.read()),
            ),
        )


def victim_share(tmp_path: Path, name: str, *, ecn: str) -> float:
    """Goodput of h5 to z2 while h1..h4 overload z1 in the same class, as a share of what it gets alone."""
    with deployed(lossless(name, 5, ecn=ecn), tmp_path) as lab, Canary() as canary:
        reno = "net.ipv4.tcp_congestion_control=reno"
        for node in ("h1", "h2", "h3", "h4", "h5", "z1", "z2"):
            setting = ["net.ipv4.tcp_ecn=1", reno] if ecn != "false" else ["net.ipv4.tcp_ecn=0", reno]
            assert lab.running.run(node, ["sysctl", "-qw", *setting]).returncode == 0
        servers = [
            lab.running.spawn(node, ["iperf3", "-s", "-p", str(port), "-1"], **PIPES)
            for node, port in (("z1", 5201), ("z1", 5202), ("z1", 5203), ("z1", 5204), ("z2", 5205))
        ]
        for node, port in (("z1", 5201), ("z1", 5202), ("z1", 5203), ("z1", 5204), ("z2", 5205)):
            await_listener(lab, node, port)

        def client(number: int, target: str, port: int) -> subprocess.Popen[bytes]:
            argv = ["iperf3", "-c", lab.address(target), "-p", str(port), "-t", "12", "-S", str(DSCP[RDMA] << 2)]
            return lab.running.spawn(f"h{number}", argv, **PIPES)

        clients = [client(number, "z1", 5200 + number) for number in range(1, 5)] + [client(5, "z2", 5205)]
        time.sleep(3)
        sent = lab.rates_bps(lab.number("s2", "eth2"), 8)
        for process in (*clients, *servers):
            process.communicate(timeout=60)
        drops, doubt = lab.lossless_drops(RDMA), doubt_about(lab, canary.read())
        judge(Figure(f"{name}: lossless drops", drops, at_most=0, ratio=True, doubt=doubt))
        return sent[RDMA] / 50e6


def await_listener(lab: PortLab, node: str, port: int) -> None:
    deadline = time.monotonic() + 10
    while f":{port}" not in lab.running.run(node, ["ss", "-Hltn", f"sport = :{port}"]).stdout:
        assert time.monotonic() < deadline, f"nobody listens at {node}:{port}"


def test_a_victim_flow(tmp_path: Path) -> None:
    alone = victim_share(tmp_path, "benchvictim", ecn="false")
    reacting = victim_share(tmp_path, "benchvictimecn", ecn="{kmin: 10kB, kmax: 30kB, pmax: 1.0}")
    judge(
        Figure("victim flow, PFC alone: of its line", alone, at_most=0.6, unit="x", ratio=True),
        Figure("victim flow, PFC and senders that react to ECN", reacting, at_least=0.85, unit="x", ratio=True),
    )


FOUR_PATHS = (
    HEAD
    + """
qos:
  classes:
    rdma: {{dscp: [26], weight: 60}}
    control: {{dscp: [48], strict: true}}
    bulk: {{default: true, weight: 40}}
  load_balancing: {{mode: {mode}}}
  watchdog: false
topology:
  nodes:
    leaf1: {{kind: switch, role: rail}}
    leaf2: {{kind: switch, role: rail}}
    spine1: {{kind: switch, role: spine}}
    spine2: {{kind: switch, role: spine}}
    spine3: {{kind: switch, role: spine}}
    spine4: {{kind: switch, role: spine}}
    h1: {{kind: host}}
    h2: {{kind: host}}
  links:
    - {{endpoints: ["h1:eth1", "leaf1:eth10"], rate: 100M}}
    - {{endpoints: ["h2:eth1", "leaf2:eth10"], rate: 100M}}
    - {{endpoints: ["leaf1:eth1", "spine1:eth1"], rate: 100M}}
    - {{endpoints: ["leaf1:eth2", "spine2:eth1"], rate: 100M}}
    - {{endpoints: ["leaf1:eth3", "spine3:eth1"], rate: 100M}}
    - {{endpoints: ["leaf1:eth4", "spine4:eth1"], rate: 100M}}
    - {{endpoints: ["leaf2:eth1", "spine1:eth2"], rate: 100M}}
    - {{endpoints: ["leaf2:eth2", "spine2:eth2"], rate: 100M}}
    - {{endpoints: ["leaf2:eth3", "spine3:eth2"], rate: 100M}}
    - {{endpoints: ["leaf2:eth4", "spine4:eth2"], rate: 100M}}
"""
)


def spread(lab: PortLab, flows: int, seconds: float, first_port: int = 0) -> np.ndarray:
    """Packets over the four uplinks of leaf1."""
    uplinks = [lab.number("leaf1", f"eth{number}") for number in (1, 2, 3, 4)]
    before = lab.queues["in_packets"][uplinks, RDMA].astype(int)
    with lab.sink("h2"):
        sender = lab.send(
            "h1", lab.address("h2"), dscp=DSCP[RDMA], rate_bps=60e6, seconds=seconds, flows=flows, first_port=first_port
        )
        (sent,) = finish([sender])
    counts = lab.queues["in_packets"][uplinks, RDMA].astype(int) - before
    assert counts.sum() == sent
    return counts


def test_one_flow_by_packet(tmp_path: Path) -> None:
    with deployed(FOUR_PATHS.format(name="benchspray", mode="spray"), tmp_path) as lab:
        counts = spread(lab, flows=1, seconds=3)
        judge(
            Figure(
                "one flow over 4 paths by packet: max/mean",
                counts.max() / counts.mean(),
                at_most=1.03,
                unit="x",
                ratio=True,
            )
        )


def test_a_thousand_flows_by_flow(tmp_path: Path) -> None:
    """Over five sets of flows: a perfect hash, too, puts more than 1.12 of the mean on a path in one set of twenty.

    Ports, addresses and seeds are fixed, so that the hash is judged and not the luck of the run.
    """
    flows = 1000
    with deployed(FOUR_PATHS.format(name="benchflow", mode="flow"), tmp_path) as lab:
        sets = []
        for first_port in range(20_000, 25_000, flows):
            counts = spread(lab, flows=flows, seconds=2, first_port=first_port)
            sets.append(counts * flows / counts.sum())  # each flow sent the same number of packets, one more or less
        paths = np.array(sets)
        expected = paths.sum() / 4
        chi_square = float(((paths.sum(axis=0) - expected) ** 2 / expected).sum())
        judge(
            Figure(
                "1,000 flows over 4 paths by hash: max/mean, median of 5 sets",
                float(np.median(paths.max(axis=1) / paths.mean(axis=1))),
                at_most=1.12,
                unit="x",
                ratio=True,
            ),
            Figure("all 5,000: chi-square of 3 degrees (99 % quantile)", chi_square, at_most=11.34, ratio=True),
        )
