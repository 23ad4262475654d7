"""Processes for the benchmarks of the UET agent, started as `uet_peers.py ROLE ...`.

Bare sockets to compare with (`sink`, `flood`, `echo`, `ping`), agents that all send to all (`agent`), and what an agent
costs when it does nothing (`idle`, `contexts`).
"""

from __future__ import annotations

import gc
import json
import os
import socket
import statistics
import sys
import time
from pathlib import Path
from random import Random

from testbed.endpoints.agent import Agent
from testbed.protocols.datagram import Incoming
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer

PORT = 9100
JOB = 7
KEY = 1
END = b"end"
SECOND_NS = 1_000_000_000
PATIENCE_NS = 60 * SECOND_NS


def udp(address: str, port: int) -> socket.socket:
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    item.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
    item.bind((address, port))
    return item


def sink(address: str) -> None:
    """Goodput in bit/s from the first datagram to the last."""
    with udp(address, PORT) as item:
        print("ready", flush=True)
        buffer = bytearray(1 << 16)
        item.recv_into(buffer)
        begun = latest = time.monotonic_ns()
        total = 0
        while (length := item.recv_into(buffer)) > len(END):
            total += length
            latest = time.monotonic_ns()
        print(total * 8e9 / (latest - begun))


def flood(address: str, size: int, seconds: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as item:
        data, peer = bytes(size), (address, PORT)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(50):
                item.sendto(data, peer)
        for _ in range(3):  # the first may find no room
            time.sleep(0.1)
            item.sendto(END, peer)


def echo(address: str) -> None:
    with udp(address, PORT) as item:
        print("ready", flush=True)
        buffer = bytearray(1 << 16)
        while True:
            length, peer = item.recvfrom_into(buffer)
            item.sendto(memoryview(buffer)[:length], peer)
            if length <= len(END):
                return


def ping(address: str, size: int, count: int) -> None:
    """Median of half a round trip, in us."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as item:
        item.connect((address, PORT))
        data, times = bytes(size), []
        for _ in range(count):
            begun = time.perf_counter_ns()
            item.send(data)
            item.recv(1 << 16)
            times.append(time.perf_counter_ns() - begun)
        item.send(END)
        print(statistics.median(times) / 2e3)


def address_of(number: int) -> str:
    return f"127.77.0.{number + 1}"


def agent(number: int, count: int, total: int) -> None:
    """Write `total` bytes, split evenly over all other agents. All begin at the time that standard input tells.

    The base RTT is that of so many processes on so few CPUs, so that a time-out means a loss and no wait for a turn.
    """
    config = UetConfig(link_rate_bps=10_000_000, base_rtt_ns=SECOND_NS)
    size = total // (count - 1)
    data = memoryview(bytearray(size))
    own = Agent(seed=number)
    fep = own.open(address_of(number), config)
    endpoint = fep.endpoint(job_id=JOB, resource_index=1)
    fep.register(memoryview(bytearray(total)), Access.REMOTE_WRITE, JOB, key=KEY)
    print("ready", flush=True)
    begin = int(sys.stdin.readline())
    own.drive(lambda: False, begin - time.monotonic_ns())
    for step in range(1, count):
        peer = (number + step) % count
        to = FepAddress(address_of(peer), 0, 1, JOB)
        endpoint.write(to, data, RemoteBuffer(KEY, ((number - peer) % count - 1) * size), time.monotonic_ns())
    own.loop.touch()
    done = own.drive(lambda: len(endpoint.completions) == count - 1, PATIENCE_NS)
    took_s = (time.monotonic_ns() - begin) / SECOND_NS
    failed = sum(not operation.ok for operation in endpoint.completions)
    print(json.dumps({"done": done, "failed": failed, "took_s": took_s, "counters": dict(fep.counters)}), flush=True)
    own.loop.watch(sys.stdin.fileno(), lambda events: own.loop.stop())  # answer the others until all are done
    own.loop.run(time.monotonic_ns() + PATIENCE_NS)
    own.close(patience_ns=0)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def idle(seconds: float) -> None:
    """Memory (MB) and CPU (%) of an agent that has sent and received a little and now has nothing to do."""
    addresses = ("127.78.0.1", "127.78.0.2")
    with Agent() as own:
        config = UetConfig()
        feps = [own.open(address, config) for address in addresses]
        near, far = (fep.endpoint(job_id=JOB, resource_index=1) for fep in feps)
        for sender, receiver in ((near, far), (far, near)):
            receiver.recv(bytearray(100), time.monotonic_ns())
            sender.send(receiver.address, bytes(100), time.monotonic_ns())
        own.drive(lambda: len(near.completions) == len(far.completions) == 2, PATIENCE_NS)
        own.drive(lambda: False, SECOND_NS)
        begun, used = time.monotonic(), time.process_time()
        own.drive(lambda: False, round(seconds * SECOND_NS))
        percent = 100 * (time.process_time() - used) / (time.monotonic() - begun)
        print(resident_bytes() / 1e6, percent)


def contexts(count: int) -> None:
    """Bytes of memory for each of so many PDCs that have been used and are idle, both ends counted."""
    config = UetConfig(pdcs_per_peer=64)
    addresses = ("10.0.0.1", "10.0.0.2")
    now = 0
    near, far = (Fep(address, config, Random(number), now) for number, address in enumerate(addresses))
    far_memory = memoryview(bytearray(64))
    gc.collect()
    before = resident_bytes()
    for job in range(1, count // 2 // 64 + 2):
        far.register(far_memory, Access.REMOTE_WRITE, job, key=job)
        endpoint = near.endpoint(job_id=job)
        for _ in range(min(64, count // 2 - (job - 1) * 64)):
            endpoint.write(FepAddress(far.address, job_id=job), b"x" * 8, RemoteBuffer(job), now)
        while not all(fep.idle for fep in (near, far)):
            now += 1000
            for source, target in ((near, far), (far, near)):
                out = source.transmit(now, 1000)
                target.receive([Incoming(source.address, item.entropy, item.to_bytes()) for item in out], now)
        assert all(operation.ok for operation in endpoint.completions)
        endpoint.completions.clear()
    made = len(near.pdcs) + len(far.pdcs)
    assert made == count, f"{made} PDCs"
    gc.collect()
    print((resident_bytes() - before) / count)


def main(role: str, *words: str) -> None:
    match role:
        case "sink":
            sink(words[0])
        case "flood":
            flood(words[0], int(words[1]), float(words[2]))
        case "echo":
            echo(words[0])
        case "ping":
            ping(words[0], int(words[1]), int(words[2]))
        case "agent":
            agent(int(words[0]), int(words[1]), int(words[2]))
        case "idle":
            idle(float(words[0]))
        case "contexts":
            contexts(int(words[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
