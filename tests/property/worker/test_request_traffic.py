"""Requests over loopback: every token arrives, no earlier than it may; peers that misbehave cost a connection each."""

import random
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback_workers import PATIENCE_S, FakeWorkers, loopback_nics

from testbed.base.units import Duration
from testbed.endpoints.loop import Loop
from testbed.endpoints.worker.http import connections
from testbed.endpoints.worker.http.messages import ANSWER_HEAD, LAST_CHUNK, SERVER_PORT, encode_request, encode_token
from testbed.endpoints.worker.http.request_traffic import RequestTraffic
from testbed.endpoints.worker.program import Endpoint, Program, Request, Step
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.run.measuring.reports import Ideals, put_together
from testbed.run.measuring.requests import RequestsMeasured
from testbed.run.placed.channels import plan_channels
from testbed.run.placed.placed_workload import PlacedWorkload, compile_programs
from testbed.workload.kinds.kind import FabricView
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.registry import build_workload
from testbed.workload.steps import Workload

MS = 1_000_000
IDEALS = Ideals(
    framing=lambda nic: Framing(payload_bytes=900, overhead_bytes=100),
    goodput_bps=lambda a, b: 0.9 * min(a.rate_bps, b.rate_bps),
    one_way_s=lambda a, b, size: 0.0,
)


def build(ranks: int, seed: int = 1, **written: Any) -> Workload:
    fabric = FabricView(ranks=ranks, rate_bps=10**9, bdp_bytes=10_000, rng=random.Random(seed))
    defaults = {"requests_per_s": 300, "span": Duration.parse("100ms"), "prefill": Duration.parse("2ms")}
    return build_workload(
        "inference-requests", defaults | {"tpot": Duration.parse("1ms"), "output_tokens": 5} | written, fabric
    )


def run(workload: Workload, seed: int = 1, k: float = 1.0) -> RequestsMeasured:
    nics = loopback_nics(workload.ranks, 1)
    channels = plan_channels(workload, nics, seed=seed)
    placement = PlacedWorkload(workload=workload, ranks=nics, channels=channels, k=k, seed=seed)
    workers = FakeWorkers(compile_programs(placement, lambda host: TcpSettings()), random.Random(seed))
    try:
        workers.execute()
        found = put_together(placement, workers.reports(), (), IDEALS)
    finally:
        workers.close()
    assert sum(found.steps_left.values()) == 0
    assert found.requests is not None
    assert found.counters["http_refusals"] == 0
    assert found.counters["http_connections"] >= 1
    return found.requests


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ranks=st.integers(2, 5),
    tokens=st.integers(1, 20),
    chunk=st.integers(16, 3000),
    prompt=st.integers(1, 20_000),
    seed=st.integers(0, 100),
)
def test_every_token_of_every_answer_arrives(ranks: int, tokens: int, chunk: int, prompt: int, seed: int) -> None:
    workload = build(ranks, seed, output_tokens=tokens, prompt_tokens=prompt, balance="random", requests_per_s=150)
    workload = Workload(
        name="x", ranks=ranks, steps=(), requests=tuple(replace(one, chunk_bytes=chunk) for one in workload.requests)
    )
    found = run(workload, seed)
    table = found.table
    assert table.number == list(range(len(workload.requests)))
    assert set(table.failure) == {""} and None not in table.end_s
    assert found.counts.answered == len(workload.requests)
    assert found.counts.output_tokens == tokens * len(workload.requests)
    assert min(found.times.ttft_s) >= 0.002, "no server answers before it has computed"
    late_s = found.counters["request_lateness_max_us"] / 1e6
    assert late_s == pytest.approx(max(table.lateness_s))
    assert min(found.times.e2el_s) >= 0.002 + (tokens - 1) * 0.001, "nor sends a token early"


def test_times_are_multiplied_by_the_scale() -> None:
    workload = build(2, requests_per_s=2000, span=Duration.parse("10ms"), prefill=Duration.parse("300us"))
    found = run(workload, k=10.0)
    assert found.table.start_s == [round(one.start_ns * 10.0) / 1e9 for one in workload.requests]
    assert set(found.table.service_first_s) == {0.003} and set(found.table.service_token_s) == {0.01}
    assert min(found.times.ttft_s) >= 0.003


def test_limits_decide_what_is_goodput() -> None:
    strict = run(build(2, ttft_limit=Duration.parse("1ms")))
    assert (strict.counts.within_limits, strict.counts.failed) == (0, 0)
    slow = run(build(2, tpot_limit=Duration.parse("100us")))
    assert slow.counts.within_limits == 0 < slow.counts.answered
    easy = run(build(2, ttft_limit=Duration.parse("10s"), tpot_limit=Duration.parse("10s")))
    assert easy.counts.within_limits == easy.counts.answered


class Heard:
    """What traffic tells its owner."""

    def __init__(self) -> None:
        self.bytes = 0
        self.failed: list[str] = []

    def on_sent(self, step: Step, now: int) -> None:
        raise AssertionError("there are no steps")

    on_arrived = on_sent

    def on_bytes(self, count: int) -> None:
        self.bytes += count

    def on_failed(self, reason: str) -> None:
        self.failed.append(reason)


@contextmanager
def traffic(own: int, requests: tuple[Request, ...]) -> Iterator[tuple[RequestTraffic, Loop, list[str]]]:
    """The traffic of rank 0 (the client) or 1 (the server); the other one is the test."""
    addresses = [str(nic.address.ip) for nic in loopback_nics(2, 1) if nic.address is not None]
    program = Program(
        transport=TcpSettings(),
        endpoints=tuple(Endpoint(rank=n, host=f"h{n}", interface="e", address=at) for n, at in enumerate(addresses)),
        own=frozenset({own}),
        channels=(),
        steps=(),
        requests=requests,
    )
    loop = Loop()
    made = RequestTraffic(program, loop, Heard())
    try:
        made.listen()
        made.begin(time.monotonic_ns())
        yield made, loop, addresses
    finally:
        made.close()
        loop.close()


def request(number: int = 0, *, tokens: int = 2, chunk_bytes: int = 100, start_ns: int = 0) -> Request:
    return Request(
        number=number,
        client=0,
        server=1,
        start_ns=start_ns,
        size_bytes=500,
        prefill_ns=0,
        tpot_ns=0,
        tokens=tokens,
        chunk_bytes=chunk_bytes,
    )


def drive(made: RequestTraffic, loop: Loop, until: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < end
        due = made.next_due()
        soon = time.monotonic_ns() + 5 * MS
        loop.run_once(soon if due is None else min(due, soon))
        made.turn(time.monotonic_ns())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\x16\x03\x01\x00garbage", "no HTTP"),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "status 503"),
        (ANSWER_HEAD + encode_token(100) * 5, "more than 2 tokens"),
        (ANSWER_HEAD + LAST_CHUNK, "after 0 of 2"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, "too long"),
        (ANSWER_HEAD + encode_token(100), "closed the connection"),
        (b"", "closed the connection"),
    ],
)
def test_a_server_that_sends_garbage_fails_one_request(answer: bytes, reason: str) -> None:
    with (
        traffic(0, (request(0), request(1, start_ns=50 * MS))) as (made, loop, addresses),
        socket.create_server((addresses[1], SERVER_PORT)) as server,
    ):
        server.setblocking(False)
        drive(made, loop, lambda: _readable(server))
        peer, _ = server.accept()
        with peer:
            peer.sendall(answer)
            peer.shutdown(socket.SHUT_WR)
            drive(made, loop, lambda: made.left == 1)
        drive(made, loop, lambda: _readable(server))
        again, _ = server.accept()
        with again:
            again.sendall(ANSWER_HEAD + encode_token(100) * 2 + LAST_CHUNK)
            drive(made, loop, lambda: made.left == 0)
        report = made.report()
        assert report["number"] == [0, 1]
        assert reason in report["failure"][0] and report["failure"][1] == ""
        assert [len(gaps) for gaps in report["gaps_ns"]][1] == 1


def test_a_server_that_is_not_there() -> None:
    with traffic(0, (request(),)) as (made, loop, _):
        drive(made, loop, lambda: made.left == 0)
        assert made.report()["failure"] == ["Connection refused"]


def test_an_idle_connection_that_the_server_closes_is_replaced() -> None:
    with (
        traffic(0, (request(0), request(1, start_ns=100 * MS))) as (made, loop, addresses),
        socket.create_server((addresses[1], SERVER_PORT)) as server,
    ):
        for left in (1, 0):
            drive(made, loop, lambda: _readable(server))
            peer, _ = server.accept()
            with peer:
                peer.sendall(ANSWER_HEAD + encode_token(100) * 2 + LAST_CHUNK)
                drive(made, loop, lambda left=left: made.left == left)  # type: ignore[misc]
        assert made.report()["failure"] == ["", ""]
        assert made.counters()["http_connections"] == 2


def _readable(item: socket.socket) -> bool:
    return bool(select.select([item], [], [], 0)[0])


def ask(address: str, data: bytes) -> socket.socket:
    peer = socket.create_connection((address, SERVER_PORT), timeout=PATIENCE_S)
    peer.sendall(data)
    return peer


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        encode_request(999, "x", 300),
        b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
        encode_request(7, "x", 300).replace(b"Content-Length: 1", b"Content-Length: 9999991"),
    ],
)
def test_a_client_that_sends_garbage_is_refused_and_others_are_answered(data: bytes) -> None:
    with traffic(1, (request(7),)) as (made, loop, addresses):
        with socket.create_connection((addresses[1], SERVER_PORT)) as peer:
            peer.setblocking(False)
            sent = peer.send(data)
            assert sent > 0
            if b"9999991" in data:
                peer.shutdown(socket.SHUT_WR)
            drive(made, loop, lambda: made.counters()["http_refusals"] == 1)
        with ask(addresses[1], encode_request(7, "x", 300)) as fine:
            drive(made, loop, lambda: _readable(fine))
            drive(made, loop, lambda: made.next_due() is None)
            answer = fine.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(LAST_CHUNK)
        with ask(addresses[1], encode_request(7, "x", 300)) as twice:
            drive(made, loop, lambda: made.counters()["http_refusals"] == 2)
            assert twice.recv(100).startswith(b"HTTP/1.1 400")


def test_a_client_that_stops_reading_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_UNSENT_BYTES", 100_000)
    with traffic(1, (request(0, tokens=100_000, chunk_bytes=5000), request(1))) as (made, loop, addresses):
        with ask(addresses[1], encode_request(0, "x", 300)):
            drive(made, loop, lambda: made.counters()["http_refusals"] == 1)
        assert made.next_due() is None, "nothing is computed for who has gone"
        with ask(addresses[1], encode_request(1, "x", 300)) as fine:
            drive(made, loop, lambda: _readable(fine))


def test_a_client_that_goes_away_is_forgotten() -> None:
    with traffic(1, (request(0, tokens=1000),)) as (made, loop, addresses):
        with ask(addresses[1], encode_request(0, "x", 300)) as peer:
            drive(made, loop, lambda: _readable(peer))
        drive(made, loop, lambda: made.counters()["http_refusals"] <= 1 and made.next_due() is None)


def test_what_was_halted_keeps_its_figures_and_closes_everything() -> None:
    with (
        traffic(1, (request(0, tokens=1000),)) as (made, loop, addresses),
        ask(addresses[1], encode_request(0, "x", 300)) as peer,
    ):
        drive(made, loop, lambda: _readable(peer))
        made.halt()
        before = made.counters()
        made.turn(time.monotonic_ns())
        assert made.counters() == before and made.next_due() is None
        made.close()
        made.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((addresses[1], SERVER_PORT))
