"""Frames that come in by memory shared with the kernel: what credits let come is not lost, however late the process."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from pathlib import Path

import pytest
from domain_lab import DomainLab, domain_lab, mac

from testbed.base.linux.namespaces import in_namespace
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Endpoints
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.frames import ETHERTYPE

pytestmark = [pytest.mark.netns]

GPUS, PLANES = 2, 2
SIZE = 4 << 20
LATE_S, ROUNDS = 0.2, 3
BUSY_SHARE = 0.5
LINK = LinkSettings(rate_bps=400_000_000, capacity=(128, 128))


def open_apart(lab: DomainLab, endpoints: Endpoints, number: int) -> Endpoint:
    return in_namespace(lab.gpu_namespace, lambda: endpoints.add(lab.settings(number)))


def test_an_end_that_comes_late_loses_nothing(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(SIZE)
    with domain_lab(tmp_path, LINK, gpus=GPUS, planes=PLANES) as lab, Endpoints(lab.endpoints.library) as late:
        source, target = lab.gpu(0), open_apart(lab, late, 1)
        memory = bytearray(SIZE)
        window = target.export(memory)
        window.authorise(0)
        handle = source.write(window.reference(), data)
        for _ in range(ROUNDS):
            lab.endpoints.run(LATE_S)  # until the credits are used up
            assert not list(source.completions()), "it was not late"
            late.run(0.005)
        deadline = time.monotonic() + 10
        while not (done := [item for item in source.completions() if item.handle == handle]):
            assert time.monotonic() < deadline
            late.run(0.001)
            lab.endpoints.run(0.001)
        assert done[0].error is None
        assert memory == data
        counters = target.counters()
        assert counters["socket_drops"] == 0
        status = lab.switch.status()
    assert status["socket_drops"] == 0
    assert all(vc["dropped_frames"] == 0 for port in status["ports"] for vc in port["vcs"])


def test_a_frame_that_is_too_long_is_counted(tmp_path: Path) -> None:
    with domain_lab(tmp_path, LINK, gpus=GPUS, planes=PLANES) as lab:
        source, target = lab.gpu(0), lab.gpu(1)
        window = target.export(bytearray(4096))
        window.authorise(0)

        def send() -> None:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as item:
                item.bind(("g0p0", 0))
                header = mac(0, 0, switch=True) + mac(0, 0, switch=False) + ETHERTYPE.to_bytes(2, "big")
                item.send(header + b"\x70" + bytes(LINK.frame_bytes))

        in_namespace(lab.gpu_namespace, send)
        lab.endpoints.wait(source, source.write(window.reference(), bytes(4096)))
        ports = lab.switch.status()["ports"]
    assert [port["malformed"] for port in ports] == [1, 0, 0, 0]


def test_interfaces_that_are_down_keep_nobody_busy(tmp_path: Path) -> None:
    def set_state(lab: DomainLab, state: str) -> None:
        for plane in range(PLANES):
            subprocess.run(["ip", "-n", lab.gpu_namespace, "link", "set", f"g0p{plane}", state], check=True)

    with domain_lab(tmp_path, LINK, gpus=GPUS, planes=PLANES) as lab:
        source, target = lab.gpu(0), lab.gpu(1)
        window = target.export(bytearray(4096))
        window.authorise(0)
        lab.endpoints.wait(source, source.write(window.reference(), bytes(4096)))
        set_state(lab, "down")
        begun, used = time.monotonic(), time.process_time()
        lab.endpoints.run(0.5)
        share = (time.process_time() - used) / (time.monotonic() - begun)
        set_state(lab, "up")
        lab.endpoints.wait(source, source.write(window.reference(), bytes(4096)))
    assert share < BUSY_SHARE
