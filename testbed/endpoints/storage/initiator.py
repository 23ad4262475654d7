"""The command line of the initiator: writes, reads or verifies a range of a namespace, or lists what a target has.

    python -m testbed.endpoints.storage.initiator write --path 10.5.0.1:4420 --nqn NQN --size 1G --bs 4M --depth 8
    --json

`write` writes the contents of a seed (`testbed.endpoints.storage.pattern`), and flushes; `verify` reads them back and
says which bytes are others; `read` only reads. With several `--path`, each is used, and one that dies is done without.
The exit status is 0 where all went well, 1 where bytes are not safe or not as expected, 2 where it could not begin.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any

from testbed.endpoints.storage.nvme_host import Initiator, StorageError
from testbed.endpoints.storage.pattern import BLOCK, Pattern, merge_ranges
from testbed.endpoints.storage.volume import Operation, Volume, VolumeRequest
from testbed.protocols.errors import UsageError
from testbed.protocols.nvme.codes import DISCOVERY_NQN
from testbed.protocols.nvme.config import HostConfig

_SIZE = re.compile(r"(\d+)([KMGT]?)(?:i?B)?")
_FACTOR = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_PATH = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([^:\[\]]+))(?::(\d{1,5}))?")
_S = 1_000_000_000


def parse_size(text: str) -> int:
    """Bytes: `4M` is 4 MiB."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 4M")
    return int(found[1]) * _FACTOR[found[2]]


def parse_path(text: str) -> tuple[str, int]:
    """An address, and a port if it is not 4420: `10.5.0.1:4420`, `[2001:db8::1]:4420`."""
    found = _PATH.fullmatch(text)
    if found is None or int(found[3] or 4420) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address such as 10.5.0.1:4420")
    return found[1] or found[2], int(found[3] or 4420)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m testbed.endpoints.storage.initiator", description="An NVMe/TCP initiator."
    )
    parser.add_argument("operation", choices=("read", "write", "verify", "discover"))
    parser.add_argument("--path", type=parse_path, action="append", required=True, metavar="ADDRESS[:PORT]")
    parser.add_argument("--nqn", default="", help="the subsystem; discover needs none")
    parser.add_argument("--hostnqn", default=f"nqn.2026-01.testbed:{socket.gethostname()}")
    parser.add_argument("--nsid", type=int, default=1)
    parser.add_argument("--offset", type=parse_size, default=0)
    parser.add_argument("--size", type=parse_size, help="all from the offset on, if it is not given")
    parser.add_argument("--bs", type=parse_size, default=1 << 20, help="bytes of a request")
    parser.add_argument("--depth", type=int, default=8, help="requests at once")
    parser.add_argument("--queues", type=int, default=1, help="I/O queues of each path")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kato", type=int, default=5000, metavar="MS", help="keep-alive time-out; 0: none")
    parser.add_argument(
        "--io-timeout",
        type=float,
        default=30.0,
        metavar="S",
        help="of a command, after which its path is reset; 0: none",
    )
    parser.add_argument("--give-up", type=float, default=10.0, metavar="S", help="without a path for so long")
    parser.add_argument("--hdgst", action="store_true", help="header digests")
    parser.add_argument("--ddgst", action="store_true", help="data digests")
    parser.add_argument("--json", action="store_true")
    return parser


class _Run:
    """One operation over a range, with so many requests at once, and what became of it."""

    def __init__(self, options: argparse.Namespace, initiator: Initiator, volume: Volume) -> None:
        """Raises `UsageError` where the range is not of whole blocks of the namespace."""
        self.options = options
        self.initiator = initiator
        self.volume = volume
        self.pattern = Pattern(options.seed)
        self.end = options.offset + (options.size or volume.size_bytes - options.offset)
        block = volume.namespace.block_bytes
        if options.offset % block or self.end % block or options.bs % block:
            raise UsageError(f"--offset, --size and --bs are multiples of the namespace's block, {block} bytes")
        if not options.offset < self.end <= volume.size_bytes:
            raise UsageError(f"bytes {options.offset} to {self.end} are not inside of {volume.size_bytes}")
        self.not_safe: list[tuple[int, int]] = []
        self.different: list[tuple[int, int]] = []
        self.latencies_ns: list[int] = []
        self.bytes_done = 0
        self.error = ""
        self.flushed: bool | None = None
        self.seconds = 0.0

    @property
    def good(self) -> bool:
        return not (self.not_safe or self.different or self.error)

    def stop(self, number: int, _: object) -> None:
        """A signal: begin nothing more, and say what became of what has begun."""
        self.error = self.error or f"ended by {signal.Signals(number).name}"

    def run(self) -> None:
        """Read or write all of it, until something fails.

        Buffers that hold whole blocks of the pattern are filled once, as those of fio are, before the time begins.
        """
        bs, depth = self.options.bs, self.options.depth
        writes = self.options.operation == "write"
        operation = Operation.WRITE if writes else Operation.READ
        free = [memoryview(bytearray(bs)) for _ in range(min(depth, -(-(self.end - self.options.offset) // bs)))]
        whole = not (self.options.offset % BLOCK or bs % BLOCK)
        put = self.pattern.move if whole else self.pattern.fill
        for view in free if writes and whole else ():
            self.pattern.fill(view, 0)
        begun = time.monotonic_ns()
        at, outstanding = self.options.offset, 0
        while at < self.end or outstanding:
            while free and at < self.end and not self.error:
                view = free.pop()[: min(bs, self.end - at)]
                if writes:
                    put(view, at)
                self.initiator.submit(self.volume, operation, at, view)
                at += len(view)
                outstanding += 1
            if self.error and not outstanding:
                break
            self.initiator.poll(None)
            while self.volume.done:
                request = self.volume.done.popleft()
                outstanding -= 1
                self._take(request)
                free.append(memoryview(request.view.obj))
        if at < self.end:
            self.not_safe.append((at, self.end - at))
        if writes and not self.error:
            self._flush()
        self.seconds = (time.monotonic_ns() - begun) / _S
        self.not_safe = merge_ranges(self.not_safe)
        self.different = merge_ranges(self.different)

    def _take(self, request: VolumeRequest) -> None:
        if request.error:
            self.error = self.error or request.error
            self.not_safe.append((request.offset, len(request.view)))
            return
        self.bytes_done += len(request.view)
        self.latencies_ns.append(request.ended - request.begun)
        if self.options.operation == "verify":
            self.different += self.pattern.differences(request.view, request.offset)

    def _flush(self) -> None:
        try:
            self.initiator.flush(self.volume)
            self.flushed = True
        except StorageError as error:
            self.flushed = False
            self.error = str(error)

    def document(self) -> dict[str, Any]:
        self.latencies_ns.sort()
        return {
            "operation": self.options.operation,
            "bytes": self.bytes_done,
            "seconds": round(self.seconds, 6),
            "bytes_per_second": round(self.bytes_done / self.seconds) if self.seconds else 0,
            "requests": len(self.latencies_ns),
            "latency_us": {name: self._percentile(share) for name, share in _PERCENTILES.items()},
            "not_safe": [list(item) for item in self.not_safe],
            "different": [list(item) for item in self.different],
            "flushed": self.flushed,
            "error": self.error,
            "resent": self.volume.resent,
            "paths": [
                {"address": path.name, "live": path.live, "associations": path.associations, "error": path.last_error}
                for path in self.initiator.paths
            ],
        }

    def _percentile(self, share: float) -> float:
        if not self.latencies_ns:
            return 0.0
        return round(self.latencies_ns[min(int(len(self.latencies_ns) * share), len(self.latencies_ns) - 1)] / 1000, 1)


_PERCENTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def _print(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(document))
        return
    rate, latency = document["bytes_per_second"] / 1e6, document["latency_us"]
    print(f"{document['operation']}: {document['bytes']} bytes in {document['seconds']:.3f} s, {rate:.0f} MB/s")
    print(f"latency: median {latency['p50']:.0f} us, 99 % {latency['p99']:.0f} us")
    for key, words in (("not_safe", "not safe"), ("different", "not as written")):
        for offset, length in document[key]:
            print(f"{words}: {length} bytes at {offset}")
    if document["error"]:
        print(f"error: {document['error']}")


def _discover(options: argparse.Namespace, config: HostConfig) -> int:
    with Initiator(options.path, DISCOVERY_NQN, config, give_up_ns=int(options.give_up * _S)) as initiator:
        found = initiator.discover()
    entries = [{"nqn": entry.subnqn, "address": entry.address, "port": entry.port} for entry in found]
    if options.json:
        print(json.dumps(entries))
    for entry in [] if options.json else entries:
        print(f"{entry['nqn']} at {entry['address']} port {entry['port']}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.operation != "discover" and not options.nqn:
        parser.error("--nqn is missing: discover lists what there is")
    if min(options.bs, options.depth, options.queues) < 1 or options.depth > 1024 or options.kato < 0:
        parser.error("--bs, --depth and --queues are at least 1, --depth at most 1024")
    config = HostConfig(
        hostnqn=options.hostnqn,
        hostid=uuid.uuid5(uuid.NAMESPACE_URL, options.hostnqn).bytes,
        io_queues=options.queues,
        kato_ms=options.kato,
        io_timeout_ns=round(options.io_timeout * _S),
        header_digest=options.hdgst,
        data_digest=options.ddgst,
    )
    try:
        if options.operation == "discover":
            return _discover(options, config)
        with Initiator(options.path, options.nqn, config, give_up_ns=int(options.give_up * _S)) as initiator:
            run = _Run(options, initiator, initiator.open_volume(options.nsid))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, run.stop)
            run.run()
            document = run.document()
    except (StorageError, UsageError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    _print(document, as_json=options.json)
    return 0 if run.good else 1


if __name__ == "__main__":
    sys.exit(main())
