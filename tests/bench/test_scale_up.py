"""What a frame through a scale-up domain costs: four GPUs, two planes, all of them copy to their neighbour.

A frame is one that the switch passes, data or answer. The switch has what is needed for that many frames in a second
only where a core's time is enough for them; the endpoints have the other core. They run at the priority that
those of workers have, and a first copy is not measured: memory is there then.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from domain_lab import domain_lab
from figures import Figure, judge
from steady_rates import prompt
from test_bring_up import deploy_and_destroy

from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.run.machine.canary import Canary

pytestmark = [pytest.mark.bench, pytest.mark.netns]

GPUS, PLANES = 4, 2
SIZE = 32 << 20
FAST_BPS = 20_000_000_000
SLOW_BPS = 50_000_000
FRAMES_PER_S = 150_000
SWITCH_US = 1e6 / FRAMES_PER_S
"""Of a core that does nothing else."""
PASS_US = 50
"""At the 99th percentile: of a frame that finds its output free, from its last bit to the hand-over to the kernel."""
IDLE_SHARE = 0.01


@pytest.mark.thorough
def test_frames_of_two_cores(tmp_path: Path) -> None:
    with domain_lab(tmp_path, LinkSettings(rate_bps=FAST_BPS, capacity=(1024, 1024)), gpus=GPUS, planes=PLANES) as lab:
        gpus = [lab.gpu(number) for number in range(GPUS)]
        windows = [gpu.export(bytearray(b"\1") * SIZE) for gpu in gpus]
        data = b"\2" * SIZE
        for number, window in enumerate(windows):
            window.authorise((number - 1) % GPUS)

        def copy_all() -> None:
            handles = [(gpu, gpu.write(windows[(gpu.gpu + 1) % GPUS].reference(), data)) for gpu in gpus]
            for gpu, handle in handles:
                lab.endpoints.wait(gpu, handle, 120.0)

        with prompt():
            copy_all()
            before, begun, used = lab.switch.status(), time.monotonic(), time.process_time()
            copy_all()
            took, used = time.monotonic() - begun, time.process_time() - used
            after = lab.switch.status()
    assert after["socket_drops"] == 0
    frames = after["frames"] - before["frames"]
    switch_us = (after["cpu_ns"] - before["cpu_ns"]) / frames / 1e3
    judge(Figure("scale-up: CPU of the switch for a frame", switch_us, at_most=SWITCH_US, unit="us"))
    judge(Figure("scale-up: CPU of both ends for a frame", used / frames * 1e6, at_most=SWITCH_US, unit="us"))
    judge(
        Figure(
            "scale-up: time of a frame through a domain, two cores",
            took / frames * 1e6,
            at_most=1e6 / FRAMES_PER_S,
            unit="us",
        )
    )


def test_an_idle_switch(tmp_path: Path) -> None:
    with domain_lab(tmp_path, LinkSettings(rate_bps=SLOW_BPS), gpus=GPUS, planes=PLANES) as lab:
        source, target = lab.gpu(0), lab.gpu(1)
        window = target.export(bytearray(1 << 20))
        window.authorise(0)
        lab.endpoints.wait(source, source.write(window.reference(), bytes(4096)))
        lab.endpoints.run(3.0)  # links say less and less often that they are there
        idle = lab.switch.status()
        lab.endpoints.run(2.0)
        later = lab.switch.status()
    share = (later["cpu_ns"] - idle["cpu_ns"]) / (later["up_ns"] - idle["up_ns"])
    judge(Figure("scale-up: share of a core of an idle switch", share, at_most=IDLE_SHARE, unit="of a core"))


@pytest.mark.thorough
def test_a_pass(tmp_path: Path) -> None:
    """From when a frame is due until the kernel has it. A sleeping thread's wake-up is a part of that."""
    with Canary() as canary, domain_lab(tmp_path, LinkSettings(rate_bps=SLOW_BPS), gpus=GPUS, planes=PLANES) as lab:
        source, target = lab.gpu(0), lab.gpu(1)
        window = target.export(bytearray(1 << 20))
        window.authorise(0)
        canary.read()
        for _ in range(200):
            lab.endpoints.wait(source, source.write(window.reference(), bytes(4096)))
        status = lab.switch.status()
        late = canary.read()
    assert late is not None
    times, woken_us = status["times"]["pass"], late.p99_ns / 1e3
    half_us, taken_us = times["p50_ns"] / 1e3, times["p99_ns"] / 1e3
    beyond_us = taken_us - woken_us
    doubt = "" if woken_us <= PASS_US / 2 else f"the machine wakes a real-time thread {woken_us:.0f} us late"
    judge(
        Figure("scale-up: a switch pass, p50", half_us, at_most=PASS_US, unit="us"),
        Figure("scale-up: a switch pass, p99", taken_us, at_most=PASS_US, unit="us", doubt=doubt),
        Figure("scale-up: the same, beyond a wake-up's p99", beyond_us, at_most=PASS_US, unit="us"),
    )


BOARD = ("topologies/scale-up-domain.yml", ())
RACK = ("topologies/nvl72.yml", ("fabric.scale_up.planes=4", "fabric.scale_up.switch_ports=360", "scale.time=500000"))
"""The 18 planes of an NVL72 as four: 288 wires."""


@pytest.mark.frr
@pytest.mark.parametrize(
    ("what", "lab", "limit_s"), [("8 GPUs x 4 planes", BOARD, 1.0), ("72 GPUs x 4 folded planes", RACK, 5.0)]
)
def test_deploy_of_a_domain_beyond_its_rails(
    tmp_path: Path, what: str, lab: tuple[str, tuple[str, ...]], limit_s: float
) -> None:
    """The same lab by time and by packets in turn, each at its best of three: what the domain adds."""
    topology, settings = lab
    runs: dict[str, list[tuple[float, float, float]]] = {"time": [], "packets": []}
    for _ in range(3):
        for by, found in runs.items():
            changed = (*settings, f"fabric.scale_up.by={by}")
            found.append(deploy_and_destroy(topology, "benchdomain", tmp_path, *changed))
    seconds = {by: min(run[0] for run in found) for by, found in runs.items()}
    used = {by: min(run[2] for run in found) for by, found in runs.items()}
    judge(
        Figure(
            f"scale-up, {what}: deploy beyond the rails",
            seconds["packets"] - seconds["time"],
            at_most=limit_s,
            unit="s",
        ),
        Figure(
            f"scale-up, {what}: memory beyond the rails", (used["packets"] - used["time"]) * 1e3, at_most=300, unit="MB"
        ),
    )
