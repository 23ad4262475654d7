"""Logs of a node's daemons and services, followed for as long as the page has them open: the verb `logs` itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import StreamingResponse

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.tasks import command_text
from testbed.api.console.tethered import tethered_words
from testbed.api.console.view import View, ViewCall, get
from testbed.api.console.views.targets import lab_of

MOST_FOLLOWED = 16
_CHUNK = 1 << 15
_SAYS = b"\x1e"
"""Stands before a line that is the console's own (ASCII's record separator)."""


class _Followed:
    """The number of logs that are followed now."""

    def __init__(self) -> None:
        self.count = 0


_FOLLOWED = _Followed()


async def _follow(call: ViewCall) -> StreamingResponse:
    """Stream what a node has logged, and what it logs from now on. The first line is the command line that does it."""
    call.console.require_write()
    lab = lab_of(call.base)
    node = call.path["node"]
    lab.node(node)
    words = ["logs", node, "-F", "-n", lab.name]
    if daemon := call.query.get("daemon", ""):
        if daemon.startswith("-") or not daemon.isprintable() or len(daemon) > 48:
            raise RefusedRequest(400, f"daemon={daemon}: expected the name of a daemon")
        words += ["-d", daemon]
    if _FOLLOWED.count >= MOST_FOLLOWED:
        raise RefusedRequest(429, f"{MOST_FOLLOWED} logs are followed already", hint="close one of them")
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return StreamingResponse(_lines(words), headers=headers, media_type="text/plain; charset=utf-8")


async def _lines(words: list[str]) -> AsyncIterator[bytes]:
    yield _SAYS + command_text(words).encode() + b"\n"
    _FOLLOWED.count += 1
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            *tethered_words(words),
            stdin=asyncio.subprocess.PIPE,  # its end ends the command, however this process ends
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,
        )
        assert process.stdout is not None
        while chunk := await process.stdout.read(_CHUNK):
            yield chunk
        yield _SAYS + f"it ended with status {await process.wait()}\n".encode()
    finally:
        _FOLLOWED.count -= 1
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(asyncio.CancelledError):
                await asyncio.shield(process.wait())


VIEW = View(name="logs", title="Logs", order=96, live=True, routes=(get("{node}", _follow),), page=False)
