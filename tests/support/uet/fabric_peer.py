"""An Ultra Ethernet endpoint in a process of its own: `python fabric_peer.py ADDRESS [RECEIVES [TAG SOURCE]]`.

It lets everybody at `SIZE` bytes of memory under `KEY`, posts RECEIVES receives (and one of TAG from the address
SOURCE), says `ready`, then prints every operation that ends as a line of JSON, until SIGTERM or SIGINT.
`FabricPeer` is what a test holds of it.
"""

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.endpoints.fabric import Fabric
from testbed.protocols.uet.addressing import FepAddress
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.memory import Access

JOB = 7
KEY = 4711
SIZE = 100_000
MS = 1_000_000
CONFIG = UetConfig(base_rtt_ns=MS, payload_bytes=1024, rto_min_ns=20 * MS)
ALL_ACCESS = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


class FabricPeer:
    """The process. A context manager: leaving it kills what still runs."""

    def __init__(self, address: str, receives: int = 0, *, tag: int | None = None, source: str = "") -> None:
        words = [sys.executable, str(Path(__file__)), address, str(receives)]
        words += [] if tag is None else [str(tag), source]
        self.address = address
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    async def ended(self) -> dict[str, Any]:
        """The next operation that has ended there: its status, length, tag, source and the SHA-256 of its data."""
        line = await asyncio.to_thread(self.process.stdout.readline)
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        """End it at once, as a crash would. A second time does nothing."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


async def serve(address: str, receives: int, tag: int | None, source: str) -> None:
    """Be the peer until a signal comes, then leave in order."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    async with Fabric() as fabric:
        domain = fabric.open(address, CONFIG)
        endpoint = domain.endpoint(job_id=JOB)
        domain.memory_region(bytearray(SIZE), access=ALL_ACCESS, key=KEY)
        for _ in range(receives):
            buffer = bytearray(SIZE)
            endpoint.post_recv(buffer, context=(buffer, None))
        if tag is not None:
            buffer = bytearray(SIZE)
            endpoint.post_trecv(buffer, tag, source=FepAddress(source, job_id=JOB), context=(buffer, tag))
        print("ready", flush=True)

        async def tell() -> None:
            async for operation in endpoint.completion_queue:
                buffer, tagged = operation.context
                line = {
                    "status": operation.status.name,
                    "length": operation.length,
                    "tag": tagged,
                    "source": str(operation.source),
                    "sha256": hashlib.sha256(buffer[: operation.length]).hexdigest(),
                }
                print(json.dumps(line), flush=True)

        telling = asyncio.ensure_future(tell())
        await told.wait()
    await telling


if __name__ == "__main__":
    given = sys.argv[1:]
    tagged = (int(given[2]), given[3]) if len(given) > 2 else (None, "")
    asyncio.run(serve(given[0], int(given[1]) if len(given) > 1 else 0, *tagged))
