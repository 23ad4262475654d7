"""Captures of several ports at once: packets decoded while they pass, and a pcapng file of all of them.

Each port is captured by the command line's own `capture`, whose output is read here. What was captured is kept in a
file without a name, of a bounded size; it is gone when the capture is forgotten, or the console ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from starlette.responses import StreamingResponse

from testbed.api.console.answers import RefusedRequest, not_found, whole_number
from testbed.api.console.tasks import command_text
from testbed.api.console.tethered import tethered_words
from testbed.api.console.view import View, ViewCall, get, post
from testbed.api.console.views.targets import check_link, lab_of
from testbed.protocols.captured.content import CapturedFrame
from testbed.protocols.captured.packet import CapturedPacket
from testbed.record.captures.decoders.registry import PacketFinder
from testbed.record.captures.layers.walk import LINK_TYPES
from testbed.record.captures.pcap import CaptureError, read_capture
from testbed.record.captures.pcapng_writer import PcapngWriter

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab

MOST_PORTS = 8
"""Ports of one capture: a process of tcpdump for each."""
MOST_CAPTURES = 4
"""Captures that are kept; the oldest that has ended makes room for a new one."""
MOST_BYTES = 64 << 20
"""The size at which a capture ends by itself."""
MOST_ROWS = 2_000
"""Decoded rows that are kept for pages that ask for them."""
MOST_ROWS_TOLD = 500
WAIT_S = 10.0
"""A page that asks for rows is answered after so long, if there are none."""
POLL_S = 0.1
IDLE_S = 30.0
"""A capture whose page no longer asks ends after so long."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketRow:
    """A packet as the page shows it. `time_s` is since the first packet of the capture."""

    number: int
    time_s: float
    port: str
    source: str
    destination: str
    transport: str
    kind: str
    length: int
    text: str
    marked: bool = False
    trimmed: bool = False
    damaged: bool = False


@dataclass(slots=True, kw_only=True)
class Capture:
    """A capture of some ports, from `start` until `stop`, or until it is large enough."""

    id: str
    lab: str
    ports: tuple[str, ...]
    words: str
    """The filter of tcpdump, as it was written."""
    count: int | None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    rows: deque[PacketRow] = field(default_factory=lambda: deque(maxlen=MOST_ROWS))
    frames: int = 0
    size_bytes: int = 0
    finders: list[PacketFinder] = field(default_factory=list)
    """The decoder of each port's packets."""
    problems: list[str] = field(default_factory=list)
    over: str = ""
    """Why it has ended; "" while it goes on."""
    asked_s: float = field(default_factory=time.monotonic)
    changed: threading.Condition = field(default_factory=threading.Condition)
    file: BinaryIO = field(default_factory=tempfile.TemporaryFile)
    writer: PcapngWriter | None = None
    first_ns: int | None = None
    left: int = 0
    """Ports that are still captured."""

    def start(self) -> None:
        """Begin to capture every port. Raises `OSError`."""
        self.writer = PcapngWriter(self.file, self.ports)
        self.left = len(self.ports)
        self.finders = [PacketFinder() for _ in self.ports]
        for number, port in enumerate(self.ports):
            process = subprocess.Popen(
                tethered_words(self.command(port)),
                stdin=subprocess.PIPE,  # its end ends the capture, however this process ends
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
            self.processes.append(process)
            threading.Thread(target=self._read, args=(number, port, process), name="capture", daemon=True).start()
        threading.Thread(target=self._watch, name="capture-watch", daemon=True).start()

    def command(self, port: str) -> list[str]:
        """Return the words of the command line that captures a port."""
        count = [] if self.count is None else ["-c", str(self.count)]
        return ["capture", port, "-w", "-", "-n", self.lab, *count, *self.words.split()]

    def stop(self, why: str) -> None:
        """End it; what was captured stays."""
        with self.changed:
            self.over = self.over or why
            self.changed.notify_all()
        for process in self.processes:
            _end(process)

    def rows_after(self, number: int) -> list[PacketRow]:
        """Return the rows behind this one."""
        self.asked_s = time.monotonic()
        with self.changed:
            return [row for row in self.rows if row.number > number][:MOST_ROWS_TOLD]

    @property
    def others(self) -> Counter[str]:
        """The frames that carried something else than our transports, by what it is."""
        with self.changed:
            return sum((finder.left_alone for finder in self.finders), Counter())

    def content(self) -> Iterator[bytes]:
        """Yield what was captured so far, as pcapng."""
        with self.changed:
            size = self.file.seek(0, 2)
        at = 0
        while at < size:
            with self.changed:
                self.file.seek(at)
                chunk = self.file.read(min(_CHUNK, size - at))
                self.file.seek(0, 2)
            if not chunk:
                return
            at += len(chunk)
            yield chunk

    def close(self) -> None:
        """End it, and forget what was captured."""
        self.stop("it was forgotten")
        with self.changed:
            self.file.close()

    # --- inside ---------------------------------------------------------------------------------------

    def _read(self, number: int, port: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            for frame in read_capture(cast(BinaryIO, process.stdout)):
                self._take(number, port, frame)
                if self.over:
                    break
        except (CaptureError, ValueError) as error:
            said = process.stderr.read(4_000).decode(errors="replace").strip()
            if not self.over:
                self._problem(f"{port}: {said.splitlines()[-1] if said else error}")
        finally:
            _end(process)
            process.wait()
            process.stdin.close()
            process.stdout.close()
            process.stderr.close()
            with self.changed:
                self.left -= 1
                if not self.left and not self.over:
                    self.over = "every port has had its packets" if self.count else "it has ended"
                self.changed.notify_all()

    def _take(self, number: int, port: str, frame: CapturedFrame) -> None:
        packet = self.finders[number].find(frame) if frame.link_type in LINK_TYPES else None
        with self.changed:
            if self.over:
                return
            assert self.writer is not None
            self.frames += 1
            if self.first_ns is None:
                self.first_ns = frame.time_ns
            self.size_bytes += self.writer.write(number, frame)
            at_s = ((frame.time_ns or 0) - (self.first_ns or 0)) / 1e9
            if packet is not None:
                self.rows.append(row_of(packet, self.frames, port, at_s, frame))
            if self.size_bytes >= MOST_BYTES:
                self.over = f"it has reached {MOST_BYTES >> 20} MiB"
            self.changed.notify_all()

    def _problem(self, text: str) -> None:
        with self.changed:
            self.problems.append(text)
            self.changed.notify_all()

    def _watch(self) -> None:
        """End the processes once it is over, or nobody looks any more."""
        while True:
            with self.changed:
                if self.changed.wait_for(lambda: bool(self.over), timeout=IDLE_S / 4):
                    break
            if time.monotonic() - self.asked_s > IDLE_S:
                self.over = "its page was closed"
                break
        self.stop(self.over)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have a command end, and tcpdump with it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def row_of(packet: CapturedPacket, number: int, port: str, time_s: float, frame: CapturedFrame) -> PacketRow:
    """Return a decoded packet as a row of the page."""
    seen = packet.datagram
    return PacketRow(
        number=number,
        time_s=round(time_s, 9),
        port=port,
        source=str(seen.source),
        destination=str(seen.destination),
        transport=packet.transport,
        kind=packet.kind,
        length=frame.length,
        text=packet.line(),
        marked=bool(seen.marked),
        trimmed=bool(seen.trimmed),
        damaged=packet.damaged,
    )


class Captures:
    """The captures of a console."""

    def __init__(self) -> None:
        self._found: dict[str, Capture] = {}
        self._lock = threading.Lock()

    def start(self, lab: RunningLab, ports: Sequence[str], words: str, count: int | None) -> Capture:
        """Begin a capture. Raises `RefusedRequest` where too many go on, and `OSError`."""
        capture = Capture(id=token_hex(8), lab=lab.name, ports=tuple(ports), words=words, count=count)
        with self._lock:
            for old in [one for one in self._found.values() if one.over]:
                if len(self._found) >= MOST_CAPTURES:
                    self._found.pop(old.id).close()
            if len(self._found) >= MOST_CAPTURES:
                capture.file.close()
                raise RefusedRequest(429, f"{MOST_CAPTURES} captures go on already", hint="stop one of them")
            self._found[capture.id] = capture
        try:
            capture.start()
        except BaseException:
            with self._lock:
                self._found.pop(capture.id, None)
            capture.close()
            raise
        return capture

    def find(self, number: str) -> Capture:
        """Raises `RefusedRequest` for one that there is not."""
        with self._lock:
            if number not in self._found:
                raise not_found("there is no such capture: it was forgotten")
            return self._found[number]

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            for capture in self._found.values():
                capture.close()
            self._found.clear()


CAPTURES = Captures()


def _start(call: ViewCall) -> dict[str, Any]:
    lab = lab_of(call.base)
    ports, words, count = call.body.get("ports"), call.body.get("filter") or "", call.body.get("count")
    if not isinstance(ports, list) or not ports or not all(isinstance(port, str) for port in ports):
        raise RefusedRequest(400, "ports: expected NODE:IF, one or several")
    if len(ports) > MOST_PORTS:
        raise RefusedRequest(400, f"{len(ports)} ports are too many for one capture (at most {MOST_PORTS})")
    if not isinstance(words, str) or len(words) > 1_000 or any(word.startswith("-") for word in words.split()):
        raise RefusedRequest(400, "filter: expected a filter of tcpdump", hint="for example udp port 4791")
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= 1_000_000):
        raise RefusedRequest(400, "count: expected a number of packets")
    for port in ports:
        check_link(lab, port)
    capture = CAPTURES.start(lab, list(dict.fromkeys(ports)), words, count)
    return {"id": capture.id, "ports": capture.ports, "command": commands_of(capture), "pipes": pipes_of(capture)}


def commands_of(capture: Capture) -> list[str]:
    """Return the command line of each port."""
    return [command_text(capture.command(port)) for port in capture.ports]


def pipes_of(capture: Capture) -> list[str]:
    """Return the lines that send what a port carries into one's own Wireshark."""
    return [f"{line} | wireshark -k -i -" for line in commands_of(capture)]


async def _rows(call: ViewCall) -> dict[str, Any]:
    """Return the rows behind one; wait for some where there are none, or for more frames than the page has seen."""
    capture = CAPTURES.find(call.path["id"])
    after = whole_number(call.query.get("after", "0"), "after")
    seen = whole_number(call.query.get("frames", "0"), "frames")
    until_s = time.monotonic() + WAIT_S
    while not (rows := capture.rows_after(after)) and not capture.over and time.monotonic() < until_s:
        await asyncio.sleep(POLL_S)
        if capture.frames > seen:  # of what is no transport of ours there are no rows, and it is counted
            rows = capture.rows_after(after)
            break
    return {
        "rows": rows,
        "frames": capture.frames,
        "bytes": capture.size_bytes,
        "others": dict(capture.others.most_common(8)),
        "problems": capture.problems,
        "over": capture.over,
    }


def _stop(call: ViewCall) -> dict[str, Any]:
    CAPTURES.find(call.path["id"]).stop("it was stopped")
    return {}


def _file(call: ViewCall) -> StreamingResponse:
    call.console.require_write()
    capture = CAPTURES.find(call.path["id"])
    name = f"{capture.lab}-{capture.id[:6]}.pcapng"
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return StreamingResponse(capture.content(), headers=headers, media_type="application/x-pcapng")


VIEW = View(
    name="capture",
    title="Capture",
    order=80,
    live=True,
    routes=(post("start", _start), get("{id}/rows", _rows), post("{id}/stop", _stop), get("{id}/file", _file)),
    style=True,
)
