"""Dask distributed, behind the few things that a pool asks of it; no other module knows it.

Its scheduler runs in a thread of ours and listens at the loopback. Workers connect to it, each with the certificate
that this pool has made for itself, and nobody ever connects to them: what a job tells, and its answer, are events that
go the way of the connection that is there. So a machine needs no open port. A task is a line of JSON, and no class of
ours is ever pickled.

https://distributed.dask.org/en/stable/ (resilience, limitations, tls)
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import queue
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from testbed.api.pool.crew import JobNews
from testbed.base.installation.extras import extra_missing

try:
    import dask
    import distributed
    from distributed.security import Security
except ModuleNotFoundError as error:
    raise extra_missing("pool", "a pool of machines", error) from error

TOPIC = "testbed"
LOOPBACK = "127.0.0.1"
MOST_DEATHS = 1
"""A job goes to another worker when its worker has died; one that sees a second worker die is given up."""
LOST_AFTER_S = 60
"""A worker that has not been heard of for so long is lost, though its connection may be there."""
HEARTBEAT_S = 5.0
QUIET = logging.CRITICAL + 1
"""A level above all messages: that something could not be told to a client that has gone is critical to Dask."""
_SETTINGS = {
    "distributed.scheduler.allowed-failures": MOST_DEATHS,
    "distributed.scheduler.worker-ttl": f"{LOST_AFTER_S}s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.low-level-log-length": 2,  # of events and messages, too, which have whole answers in them
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "60s",
    "distributed.admin.tick.limit": "60s",
    # What Dask looks at of itself, which nobody asks for here: the desk may be a core that a machine needs.
    "distributed.admin.tick.interval": "5s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.scheduler.active-memory-manager.start": False,
}


class _Arrivals(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Has None put into the news when a worker has come."""

    def __init__(self, news: queue.Queue[Any]) -> None:
        self._news = news

    def add_worker(self, scheduler: object, worker: str) -> None:
        self._news.put(None)


class Engine:
    """A scheduler of jobs. A context: nothing of it is left when it ends. `news` gets what becomes of jobs, and None
    when workers come."""

    def __init__(self, news: queue.Queue[Any]) -> None:
        self._news = news
        self._numbers = count(1)
        self._futures: dict[str, distributed.Future] = {}
        _be_quiet()
        dask.config.set(_SETTINGS)
        security = Security.temporary()
        self.certificate, self.key = str(security.tls_ca_file), str(security.tls_worker_key)
        self._cluster = distributed.LocalCluster(
            n_workers=0,
            host=LOOPBACK,
            protocol="tls",
            scheduler_port=0,
            dashboard_address=None,
            security=security,
            scheduler_kwargs={"dashboard": False, "dashboard_address": f"{LOOPBACK}:0"},
            silence_logs=QUIET,
        )
        self._client = distributed.Client(self._cluster, set_as_default=False)
        self._client.subscribe_topic(TOPIC, self._heard)
        self._cluster.scheduler.add_plugin(_Arrivals(news))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        for close in (self._client.close, self._cluster.close):
            with suppress(TimeoutError, OSError):  # what was measured is safe, and all of this ends with the process
                close(timeout=5)

    @property
    def port(self) -> int:
        """Return the port of the scheduler at the loopback."""
        return int(self._cluster.scheduler_address.rpartition(":")[2])

    @property
    def workers(self) -> int:
        """Return the number of workers that are connected."""
        return len(self._cluster.scheduler.workers)

    def submit(self, request: Mapping[str, Any], kind: str, machine: str = "") -> str:
        """Have a job done by a worker of this kind, of one machine if it is given. Returns the job's key."""
        key = f"job-{next(self._numbers)}"
        resource = f"{kind}@{machine}" if machine else kind
        future = self._client.submit(
            do_job, key, json.dumps(request, default=str), key=key, pure=False, retries=0, resources={resource: 1}
        )
        self._futures[key] = future
        future.add_done_callback(lambda done: self._ended(key, done))
        return key

    def forget(self, key: str) -> None:
        """Give up a job: nothing that is said of it counts any more."""
        future = self._futures.pop(key, None)
        if future is not None:
            self._client.cancel([future], force=True)

    def _heard(self, event: Any) -> None:
        _, told = event
        news = JobNews.told(told)
        if news is not None:
            self._news.put(news)

    def _ended(self, key: str, future: distributed.Future) -> None:
        if self._futures.pop(key, None) is None:
            return
        why, given_up = "", False
        if future.status == "error":
            error = future.exception()
            given_up = isinstance(error, distributed.KilledWorker)
            why = f"{type(error).__name__}: {error}".splitlines()[0]
        elif future.status != "finished":
            why = f"it was {future.status}"
        self._news.put(JobNews(key=key, ended=True, why=why, given_up=given_up))
        future.release()


# --- on the machines of a pool -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """An order to a worker: its name, its machine, the kind of its jobs, and where and as whom it connects.

    `directory` is where it may write.
    """

    name: str
    machine: str
    kind: str
    port: int
    certificate: str
    key: str = field(repr=False)
    directory: str


class _Seated:
    """The seat of this worker, which does its jobs, and the machine's name."""

    connection: socket.socket | None = None
    machine = ""


def work(order: WorkerOrder, seat: socket.socket) -> None:
    """Be a worker until the scheduler is gone. `seat` is asked to do its jobs."""
    _be_quiet()
    dask.config.set(_SETTINGS)
    _Seated.connection, _Seated.machine = seat, order.machine
    asyncio.run(_work(order))


async def _work(order: WorkerOrder) -> None:
    security = Security(
        require_encryption=True,
        tls_ca_file=order.certificate,
        tls_worker_cert=order.certificate,
        tls_worker_key=order.key,
    )
    Path(order.directory).mkdir(exist_ok=True)
    async with _SeldomHeard(
        f"tls://{LOOPBACK}:{order.port}",
        # Workers are known by their addresses, and those of all machines are of a loopback: each has one of its own.
        host=own_loopback(order.name),
        nthreads=1,
        name=order.name,
        security=security,
        resources={order.kind: 1, f"{order.kind}@{order.machine}": 1},
        memory_limit=0,
        local_directory=order.directory,
        dashboard=False,
        dashboard_address=f"{LOOPBACK}:0",
    ) as worker:
        await worker.finished()


class _SeldomHeard(distributed.Worker):  # type: ignore[misc]
    """A worker that says every few seconds that it is there, where few others do so twice a second: each time costs its
    machine and the desk some ms, and a worker that ends is known by its connection."""

    async def heartbeat(self) -> None:
        await super().heartbeat()
        self.periodic_callbacks["heartbeat"].callback_time = HEARTBEAT_S * 1000


def own_loopback(name: str) -> str:
    """Return an address of 127.0.0.0/8 (RFC 1122, 3.2.1.3) that goes by a name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return f"127.{64 + number % 128}.{number // 128 % 256}.{1 + number // 32768 % 254}"


def do_job(key: str, request: str) -> None:
    """Have the seat of this worker do a job, and send what it tells and its answer as events."""
    worker = distributed.get_worker()
    seat = _Seated.connection
    if seat is None:
        raise RuntimeError("this worker has no seat")
    worker.log_event(TOPIC, {"key": key, "began": _Seated.machine})
    try:
        seat.sendall(request.encode() + b"\n")
        with seat.makefile("rb") as lines:
            for line in lines:
                if not line.startswith(b'{"share"'):
                    worker.log_event(TOPIC, {"key": key, "answer": line.rstrip(b"\n")})
                    return
                worker.log_event(TOPIC, {"key": key, "share": json.loads(line)["share"]})
    except OSError:
        pass
    os._exit(1)  # without its seat it is of no use: the station starts both anew, and the job goes to another


def _be_quiet() -> None:
    """Keep the engine's log to itself: what matters of it is told as news."""
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(QUIET)
