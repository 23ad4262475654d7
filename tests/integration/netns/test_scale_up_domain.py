"""A scale-up domain of four GPUs and two planes: a real switch process, real links, memory that is compared."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from domain_lab import DomainLab, domain_lab, host_gpus

from testbed.protocols.scale_up.domain.endpoint import Endpoint
from testbed.protocols.scale_up.domain.errors import LinkDown, WindowRefused
from testbed.protocols.scale_up.domain.host_gpus import GPUS_VARIABLE
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings
from testbed.protocols.scale_up.domain.windows import READ, WindowReference
from testbed.protocols.scale_up.retry import RetryConfig

pytestmark = [pytest.mark.netns]

GPUS, PLANES = 4, 2
SIZE = 1 << 20
LINK: dict[str, Any] = {"rate_bps": 100_000_000, "delay_ns": 100_000, "coarse": 16}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[DomainLab]:
    with domain_lab(tmp_path, LinkSettings(**LINK), gpus=GPUS, planes=PLANES) as lab:
        yield lab


def pattern(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def dropped(ports: list[dict[str, Any]]) -> int:
    return sum(vc["dropped_frames"] for port in ports for vc in port["vcs"])


def test_copies_atomics_and_messages(lab: DomainLab) -> None:
    """What is written is there, unaligned and over both planes; numbers are exact; nothing is lost, no credit leaks."""
    gpus = [lab.gpu(number) for number in range(GPUS)]
    memory = [bytearray(SIZE + 64) for _ in gpus]
    windows = [gpu.export(part) for gpu, part in zip(gpus, memory, strict=True)]
    for window in windows:
        for peer in range(GPUS):
            window.authorise(peer)
    data = [pattern(number, SIZE) for number in range(GPUS)]
    handles = [
        gpu.write(windows[(number + 1) % GPUS].reference(), data[number], offset=3) for number, gpu in enumerate(gpus)
    ]
    for gpu, handle in zip(gpus, handles, strict=True):
        lab.endpoints.wait(gpu, handle)
    for number in range(GPUS):
        assert memory[number][3 : 3 + SIZE] == data[(number - 1) % GPUS]
        assert memory[number][:3] == bytes(3) and memory[number][3 + SIZE :] == bytes(61)
    back = bytearray(SIZE - 5)
    lab.endpoints.wait(gpus[2], gpus[2].read(windows[1].reference(), back, offset=5))
    assert back == memory[1][5:SIZE]

    counter = windows[0].reference()
    memory[0][64:72] = bytes(8)
    adds = [(gpu, gpu.fetch_add(counter, 64, 1)) for gpu in gpus[1:] for _ in range(20)]
    seen = sorted(lab.endpoints.wait(gpu, handle).result for gpu, handle in adds)
    assert seen == list(range(60))
    swap = gpus[1].compare_and_swap(counter, 64, 60, 7, size=4)
    assert lab.endpoints.wait(gpus[1], swap).result == 60
    assert memory[0][64:72] == (7).to_bytes(8, "little")
    fence = [gpus[3].write(counter, b"first", 128), gpus[3].fence(), gpus[3].write(counter, b"again", 128)]
    for handle in fence:
        lab.endpoints.wait(gpus[3], handle)
    assert memory[0][128:133] == b"again"
    for number in range(5):
        lab.endpoints.wait(gpus[1], gpus[1].message(2, f"message {number}".encode()))
    assert list(gpus[2].messages()) == [(1, f"message {number}".encode()) for number in range(5)]

    lab.endpoints.run(0.1)
    status = lab.switch.status()
    assert status["socket_drops"] == dropped(status["ports"]) == 0
    for port in status["ports"]:
        counted = gpus[port["gpu"]].counters()["planes"][port["plane"]]
        for ours, theirs in zip(counted["vcs"], port["vcs"], strict=True):
            assert ours["s_cc"] == ours["s_cf"] == theirs["r_cc"] == theirs["r_cf"]
            assert theirs["s_cc"] == theirs["s_cf"] == ours["r_cc"] == ours["r_cf"]
            assert theirs["rx_frames"] > 0
        assert port["cf_update_errors"] == counted["cf_update_errors"] == 0


def test_a_window_that_is_not_for_everybody(lab: DomainLab) -> None:
    owner, friend, stranger = lab.gpu(0), lab.gpu(1), lab.gpu(2)
    memory = bytearray(b"secret" * 100)
    window = owner.export(memory, READ)
    window.authorise(1)
    reference = window.reference()
    lab.endpoints.wait(friend, friend.read(reference, bytearray(6)))
    with pytest.raises(WindowRefused):
        lab.endpoints.wait(friend, friend.write(reference, b"nothing"))
    with pytest.raises(WindowRefused):
        lab.endpoints.wait(stranger, stranger.read(reference, bytearray(6)))
    window.authorise(1, False)
    with pytest.raises(WindowRefused):
        lab.endpoints.wait(friend, friend.read(reference, bytearray(6)))
    assert memory == b"secret" * 100
    assert owner.counters()["refused"] == 3


@pytest.mark.parametrize("flow_control", list(FlowControl))
def test_an_incast(tmp_path: Path, flow_control: FlowControl) -> None:
    """Three GPUs write to one: with credits and with pauses nothing is lost and each has a third; without, frames are
    lost at the full input buffers and transactions time out.

    The headroom for pauses is 15 ms of the link's rate, which is what a busy machine may take to obey.
    """
    room = 60 if flow_control is FlowControl.NONE else 240
    link = LinkSettings(**LINK, flow_control=flow_control, capacity=(room, room), xoff=(20, 20), xon=(10, 10))
    with domain_lab(tmp_path, link, gpus=GPUS, planes=PLANES) as lab:
        target = lab.gpu(0, timeout_s=0.5)
        senders = [lab.gpu(number, timeout_s=0.5) for number in range(1, GPUS)]
        memory = bytearray(3 * SIZE)
        window = target.export(memory)
        data = pattern(7, SIZE)
        for number, sender in enumerate(senders):
            window.authorise(sender.gpu)
            sender.write(window.reference(), data, number * SIZE)
        ended: list[tuple[int, bool]] = []
        deadline = time.monotonic() + 20
        while len(ended) < len(senders) and time.monotonic() < deadline:
            lab.endpoints.run(1.0)
            ended += [
                (done.ended_ns - done.begun_ns, done.error is None) for item in senders for done in item.completions()
            ]
        status = lab.switch.status()
        assert status["socket_drops"] == 0
        inputs = [port for port in status["ports"] if port["gpu"]]
        if flow_control is FlowControl.NONE:
            assert dropped(inputs) > 0
            assert not all(fine for _, fine in ended)
            return
        assert dropped(status["ports"]) == 0
        assert [fine for _, fine in ended] == [True] * 3
        assert memory == 3 * data
        times = [took for took, _ in ended]
        assert max(times) < 1.3 * min(times), "all have their share"
        if flow_control is FlowControl.PFC:
            assert sum(port["xoff_tx"] for port in inputs) > 0
        else:
            assert max(port["vcs"][0]["deepest"] for port in inputs) <= 240


def test_the_switch_is_killed_and_comes_again(lab: DomainLab) -> None:
    """Operations end with an error soon after, and the next switch carries what comes after."""
    source, target = lab.gpu(0), lab.gpu(1)
    memory = bytearray(16 * SIZE)
    window = target.export(memory)
    window.authorise(0)
    lab.endpoints.wait(source, source.write(window.reference(), b"x" * SIZE))
    handle = source.write(window.reference(), bytes(16 * SIZE))
    lab.endpoints.run(0.05)
    os.kill(lab.switch.status()["pid"], signal.SIGKILL)
    killed = time.monotonic()
    with pytest.raises(LinkDown):
        lab.endpoints.wait(source, handle)
    took = time.monotonic() - killed
    assert took < 0.1, "its guardian tells all GPUs"
    assert source.planes_down() == [0, 1]
    with pytest.raises(LinkDown):
        lab.endpoints.wait(source, source.write(window.reference(), b"y"))
    lab.start_switch()
    deadline = time.monotonic() + 10
    while source.planes_down() and time.monotonic() < deadline:
        lab.endpoints.run(0.02)
    lab.endpoints.wait(source, source.write(window.reference(), b"z" * SIZE))
    assert memory[:SIZE] == b"z" * SIZE


def test_a_gpu_leaves_and_comes_again(lab: DomainLab) -> None:
    """Requests for it come back at once and hold nobody up; the switch takes the next one that opens its links."""
    source, target, other = lab.gpu(0), lab.gpu(1), lab.gpu(2)
    windows = [gpu.export(bytearray(SIZE)) for gpu in (target, other)]
    for window in windows:
        window.authorise(0)
    lab.endpoints.wait(source, source.write(windows[0].reference(), b"x" * SIZE))
    lab.endpoints.remove(target)
    with pytest.raises(LinkDown):
        lab.endpoints.wait(source, source.write(windows[0].reference(), b"y" * SIZE), 1.0)
    lab.endpoints.wait(source, source.write(windows[1].reference(), b"y" * SIZE))
    again = lab.gpu(1)
    memory = bytearray(SIZE)
    window = again.export(memory)
    window.authorise(0)
    lab.endpoints.run(0.7)  # a peer that a plane does not reach is tried again after 0.5 s
    lab.endpoints.wait(source, source.write(window.reference(), b"z" * SIZE))
    assert memory == b"z" * SIZE


def test_what_an_end_left_in_the_switch_is_not_its_successors(lab: DomainLab) -> None:
    """A request waits for a GPU that is not there. Both GPUs begin anew, and no old refusal ends a new write."""
    first = lab.gpu(0)
    first.write(WindowReference(gpu=1, number=0, key=7, size=SIZE), pattern(1, 64))
    lab.endpoints.run(0.2)
    assert sum(port["vcs"][0]["rx_frames"] for port in lab.switch.status()["ports"]) == 1
    lab.endpoints.remove(first)
    gpus = [lab.gpu(number) for number in (0, 1)]
    memory = bytearray(SIZE)
    window = gpus[1].export(memory)
    window.authorise(0)
    data = pattern(2, SIZE)
    lab.endpoints.wait(gpus[0], gpus[0].write(window.reference(), data))
    assert memory == data
    assert sum(port["stale"] for port in lab.switch.status()["ports"]) == 1


def test_requests_and_responses_on_one_channel_can_lock_up(tmp_path: Path) -> None:
    """S3: reads both ways through small buffers come to an end on two channels; on one, requests hold each other's
    answers up for ever."""
    link = LinkSettings(**LINK, capacity=(10, 10))
    for response_vc, ends in ((1, True), (0, False)):
        with domain_lab(tmp_path / str(response_vc), link, gpus=2, planes=1) as lab:
            gpus = [lab.gpu(number, response_vc=response_vc, timeout_s=30.0) for number in range(2)]
            memory = [bytearray(pattern(number, SIZE)) for number in range(2)]
            windows = [gpu.export(part) for gpu, part in zip(gpus, memory, strict=True)]
            into = [bytearray(SIZE) for _ in gpus]
            for number in range(2):
                windows[1 - number].authorise(number)
                gpus[number].read(windows[1 - number].reference(), into[number])
            done = 0
            deadline = time.monotonic() + (10 if ends else 3)
            while done < 2 and time.monotonic() < deadline:
                lab.endpoints.run(0.5)
                done += sum(len(list(gpu.completions())) for gpu in gpus)
            assert (done == 2) is ends
            assert (into == memory[::-1]) is ends
            if not ends:
                before = [_served(gpu) for gpu in gpus]
                lab.endpoints.run(0.5)
                assert [_served(gpu) for gpu in gpus] == before, "no progress"


def _served(gpu: Endpoint) -> int:
    return int(gpu.counters()["served"])


def test_an_end_that_is_opened_again_at_once_is_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs are drawn: here the same one again and again, long before anybody could have been silent."""
    monkeypatch.setattr("secrets.randbelow", lambda limit: 6)
    retry = RetryConfig(outstanding_frames_max=64, replay_timer_ns=20_000_000, replay_count_max=3)
    with domain_lab(tmp_path, LinkSettings(**LINK, silence_ns=5_000_000_000, retry=retry), gpus=2, planes=2) as lab:
        for _ in range(3):
            source, target = lab.gpu(0), lab.gpu(1)
            window = target.export(bytearray(SIZE))
            window.authorise(0)
            lab.endpoints.wait(source, source.write(window.reference(), bytes(range(256)) * 64), 3.0)
            for endpoint in (source, target):
                lab.endpoints.remove(endpoint)


def test_a_wait_for_the_switch_ends_by_its_greeting_alone(tmp_path: Path) -> None:
    """What is done meanwhile, or readable, neither ends it nor keeps a processor busy, and is there afterwards."""
    delay_ns = 50_000_000
    with domain_lab(tmp_path, LinkSettings(**LINK | {"delay_ns": delay_ns}), gpus=3, planes=2) as lab:
        first, second = lab.gpu(0), lab.gpu(1)
        for gpu in (first, second):
            assert lab.endpoints.wait_known(gpu)
        readable = os.eventfd(1)
        try:
            lab.endpoints.watch(readable)
            message = first.message(1, b"uncollected")
            lab.endpoints.wait(first, message)
            third = lab.gpu(2)
            began_ns, used_ns = time.monotonic_ns(), time.thread_time_ns()
            assert lab.endpoints.wait_known(third)
            waited_ns = time.monotonic_ns() - began_ns
            assert third.is_known and waited_ns > delay_ns
            assert time.thread_time_ns() - used_ns < waited_ns / 4
            lab.endpoints.run(60)  # ends at once, by what is readable
            assert time.monotonic_ns() - began_ns < 30e9
            assert list(second.messages()) == [(0, b"uncollected")]
        finally:
            os.close(readable)


HOLDER = """
import sys, time
from testbed.protocols.scale_up.domain.endpoint import Endpoints
from testbed.protocols.scale_up.domain.host_gpus import HostGpus
host = HostGpus.read()
with Endpoints(host.library) as endpoints:
    gpu = endpoints.add(host.gpu(2))
    assert endpoints.wait_known(gpu)
    window = gpu.export(bytearray(1 << 20))
    window.authorise(0)
    print(window.number, window.key, window.size, flush=True)
    while True:
        endpoints.run()
"""


@contextmanager
def holder(lab: DomainLab, directory: Path) -> Iterator[tuple[subprocess.Popen[str], WindowReference]]:
    """A process that is the second GPU, and a window that it has."""
    path = directory / "gpus.json"
    path.write_text(host_gpus(lab, time_scale=1000, rtt_ns=800).to_json())
    command = ["ip", "netns", "exec", lab.gpu_namespace, sys.executable, "-c", HOLDER]
    environment = os.environ | {GPUS_VARIABLE: str(path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            number, key, size = map(int, process.stdout.readline().split())
            yield process, WindowReference(gpu=1, number=number, key=key, size=size)
        finally:
            process.kill()


def _downs(lab: DomainLab) -> int:
    return sum(port["downs"] for port in lab.switch.status()["ports"])


def _read_when_forgiven(lab: DomainLab, reader: Endpoint, window: WindowReference) -> None:
    """A GPU that has been unreachable is not tried again for a while, however soon its next end is there."""
    deadline = time.monotonic() + 5.0
    while True:
        try:
            lab.endpoints.wait(reader, reader.read(window, bytearray(SIZE)))
        except LinkDown:
            assert time.monotonic() < deadline
            lab.endpoints.run(0.05)
        else:
            return


def test_an_end_whose_process_is_killed_is_noticed_at_once(tmp_path: Path) -> None:
    """Its links are down long before they are silent, and a read is given back before its own time is over. What was on
    a long wire then does not bring the dead end back, and the next one works."""
    link = LinkSettings(**LINK | {"delay_ns": 50_000_000, "silence_ns": 60_000_000_000})
    with domain_lab(tmp_path, link, gpus=2, planes=2) as lab:
        reader = lab.gpu(0, timeout_s=60.0)
        assert lab.endpoints.wait_known(reader)
        for _ in range(3):
            with holder(lab, tmp_path) as (process, window):
                _read_when_forgiven(lab, reader, window)
                before = _downs(lab)
                process.kill()
                began = time.monotonic()
                while (downs := _downs(lab)) < before + 2:
                    assert time.monotonic() - began < 1.0
                    lab.endpoints.run(0.001)
                with pytest.raises(LinkDown):
                    lab.endpoints.wait(reader, reader.read(window, bytearray(64)), 5.0)
                assert downs == _downs(lab) == before + 2
