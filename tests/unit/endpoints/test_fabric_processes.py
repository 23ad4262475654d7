"""The transport between processes: every operation, encryption, peers that die, leave and come back, and its cost."""

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from agent_io_fakes import own_address
from fabric_peer import CONFIG, JOB, KEY, SIZE, FabricPeer

from testbed.endpoints.fabric import Domain, Fabric
from testbed.endpoints.fabric_endpoint import CompletionError, FabricEndpoint
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.memory import RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode, ReturnCode
from testbed.protocols.uet.security.key_derivation import DomainKey
from testbed.protocols.uet.security.tss import SecureDomain, SecurityMode
from testbed.protocols.uet.security.tss_header import Tsc
from testbed.protocols.uet.trace import Trace

pytestmark = pytest.mark.process

PATIENCE_S = 60.0


def run(scene: Callable[[Domain, FabricEndpoint], Awaitable[None]], address: str) -> None:
    """A scene of a FEP at this address and its endpoint."""

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), Fabric(seed=1) as fabric:
            domain = fabric.open(address, CONFIG)
            await scene(domain, domain.endpoint(job_id=JOB))

    asyncio.run(whole())


def pattern(seed: int, size: int = SIZE) -> bytes:
    return Random(seed).randbytes(size)


def digest(seed: int) -> str:
    return hashlib.sha256(pattern(seed)).hexdigest()


def test_every_operation_between_two_processes() -> None:
    here, there = own_address(), own_address()

    async def scene(domain: Domain, endpoint: FabricEndpoint) -> None:
        with FabricPeer(there, 2, tag=5, source=here) as peer:
            await asyncio.gather(
                endpoint.send(there, pattern(3)),
                endpoint.send(there, pattern(3)),
                endpoint.tsend(there, pattern(4), 5, mode=Mode.ROD),
            )
            received = [await peer.ended() for _ in range(3)]
            assert {(item["status"], item["length"], item["source"]) for item in received} == {
                ("OK", SIZE, f"{here}/0/1")
            }
            assert sorted((item["tag"] or 0, item["sha256"]) for item in received) == sorted(
                [(0, digest(3)), (0, digest(3)), (5, digest(4))]
            )
            for mode, seed in ((Mode.RUD, 1), (Mode.ROD, 2), (Mode.RUDI, 6)):
                await endpoint.write(there, pattern(seed), RemoteBuffer(KEY), mode=mode)
                back = bytearray(SIZE)
                assert (await endpoint.read(there, back, RemoteBuffer(KEY), mode=mode)).length == SIZE
                assert back == pattern(seed)
            five, nine, old = (number.to_bytes(8, "little") for number in (5, 9, 0))
            await endpoint.atomic(there, Amo(AmoOpcode.WRITE, AmoType.UINT64, five), RemoteBuffer(KEY, 8))
            result = bytearray(old)
            swap = Amo(AmoOpcode.CSWAP, AmoType.UINT64, nine, compare=five)
            await endpoint.fetch_atomic(there, swap, result, RemoteBuffer(KEY, 8))
            assert result == five
            assert len(domain.fep.pdcs) == 2
            assert domain.fabric.agent.sockets(here).counters.sent > 100

    run(scene, here)


def test_encrypted_endpoints_talk() -> None:
    def keys() -> SecureDomain:
        key = DomainKey(bytes(range(32)))
        return SecureDomain(5, key, first_tsc=Tsc(counter=1), mode=SecurityMode.CLUSTER)

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), Fabric(seed=1) as fabric:
            near, far = (fabric.open(own_address(), CONFIG, security=keys()) for _ in range(2))
            a, b = near.endpoint(job_id=JOB), far.endpoint(job_id=JOB)
            buffer = bytearray(SIZE)
            await asyncio.gather(b.recv(buffer), a.send(far.address, pattern(1)))
            assert buffer == pattern(1)

    asyncio.run(whole())


def test_traces_are_written(tmp_path: Path) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), Fabric(seed=1) as fabric:
            near, far = fabric.open(own_address(), CONFIG, trace=Trace()), fabric.open(own_address(), CONFIG)
            a, b = near.endpoint(job_id=JOB), far.endpoint(job_id=JOB)
            await asyncio.gather(b.recv(bytearray(SIZE)), a.send(far.address, pattern(1)))
            near.write_trace(tmp_path / "trace.jsonl")
            lines = (tmp_path / "trace.jsonl").read_text().splitlines()
            assert near.fep.trace is not None and len(lines) == len(near.fep.trace)
            assert {"sent", "acked"} <= {json.loads(line)["kind"] for line in lines}
            with pytest.raises(UsageError, match="trace"):
                far.write_trace(tmp_path / "none.jsonl")
            with pytest.raises(OSError):
                near.write_trace(tmp_path)

    asyncio.run(whole())


def test_a_killed_peer_fails_operations_and_a_new_one_in_its_place_works() -> None:
    there = own_address()

    async def scene(_: Domain, endpoint: FabricEndpoint) -> None:
        with FabricPeer(there, 1) as peer:
            await endpoint.send(there, pattern(1))
            await endpoint.write(there, pattern(2), RemoteBuffer(KEY))
            peer.kill()
            lost = [endpoint.send(there, pattern(1)) for _ in range(3)]
            lost += [
                endpoint.write(there, pattern(1), RemoteBuffer(KEY)),
                endpoint.read(there, bytearray(10), RemoteBuffer(KEY)),
            ]
            for result in await asyncio.gather(*lost, return_exceptions=True):
                assert isinstance(result, CompletionError) and result.code is ReturnCode.UNDELIVERABLE
                assert result.operation.error
        with FabricPeer(there, 1) as again:
            await endpoint.send(there, pattern(9))
            assert (await again.ended())["sha256"] == digest(9)
            back = bytearray(SIZE)
            await endpoint.write(there, pattern(8), RemoteBuffer(KEY))
            await endpoint.read(there, back, RemoteBuffer(KEY))
            assert back == pattern(8)

    run(scene, own_address())


def test_a_peer_that_restarts_at_once_is_told_apart() -> None:
    there = own_address()

    async def scene(_: Domain, endpoint: FabricEndpoint) -> None:
        with FabricPeer(there, 1) as peer:
            await endpoint.send(there, b"x")
            peer.kill()
        with FabricPeer(there, 2) as again:
            # It goes to the context of the dead one, which the new one does not know.
            with pytest.raises(CompletionError, match="UNDELIVERABLE"):
                await endpoint.send(there, b"x")
            await asyncio.gather(endpoint.send(there, b"x"), endpoint.send(there, b"x"))
            assert [(await again.ended())["status"] for _ in range(2)] == ["OK", "OK"]

    run(scene, own_address())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_peer_that_leaves_closes_everything_in_order(number: signal.Signals) -> None:
    there = own_address()

    async def scene(domain: Domain, endpoint: FabricEndpoint) -> None:
        with FabricPeer(there, 1) as peer:
            await endpoint.send(there, b"x")
            peer.process.send_signal(number)
            assert await asyncio.to_thread(peer.process.wait, 20) == 0
            assert domain.fep.pdcs == [] and "pdc-failed" not in domain.fep.counters

    run(scene, own_address())


def test_an_idle_process_is_small_and_at_rest() -> None:
    with FabricPeer(own_address(), 1) as peer:
        directory = Path(f"/proc/{peer.process.pid}")
        status = dict(line.split(":", 1) for line in (directory / "status").read_text().splitlines())
        assert int(status["VmRSS"].split()[0]) <= 40 * 1024
        assert int(status["Threads"]) == 1
        assert (directory / "wchan").read_text() in ("ep_poll", "do_epoll_wait", "0", "")


def test_what_an_agent_does_not_need_is_not_loaded() -> None:
    ask = "import sys, testbed.endpoints.agent; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.split())
    assert "testbed.protocols.uet.fep" in loaded
    assert loaded.isdisjoint(
        {"asyncio", "numpy", "pydantic", "cryptography", "testbed.lab.core.schema", "testbed.base.units"}
    )
