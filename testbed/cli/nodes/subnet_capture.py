"""Captures at a port of an InfiniBand back end: by the lab's wires, until Ctrl-C, so many frames or the wires' end."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from testbed.base.errors import TestbedError
from testbed.base.interrupt import Interrupt
from testbed.cli.nodes.packets import text_line
from testbed.cli.signals import nobody_reads
from testbed.protocols.captured.content import CapturedFrame
from testbed.protocols.infiniband.binding import vcrc
from testbed.protocols.infiniband.local_routing import VCRC_BYTES
from testbed.record.captures import erf
from testbed.record.captures.decoders.registry import PacketFinder
from testbed.record.captures.pcapng_writer import PcapngWriter

if TYPE_CHECKING:
    from testbed.daemons.subnetd.listening import FrameCapture
    from testbed.lab.features.infiniband.live import LiveSubnet

COMES, LEAVES = 0, 1
"""The interfaces of a file: one for each direction."""


def capture_subnet(subnet: LiveSubnet, place: str, *, write: str | None, count: int | None) -> int:
    """Print the frames at a port, or write them as pcapng ("-": to stdout); the exit code comes back. At the end it is
    told how many there were, and how many of them were dropped since this was too slow for them.

    Raises `TestbedError` for a port that is not there, and where no wires carry frames.
    """
    if count is not None and count < 1:
        raise TestbedError(f"--count {count}: expected at least 1")
    wires = subnet.require_wires()
    with ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        capture = stack.enter_context(wires.capture(*subnet.channel(place)))
        show: Callable[[CapturedFrame, int], None] = _Lines()
        if write is not None:
            stream = sys.stdout.buffer if write == "-" else stack.enter_context(Path(write).open("wb"))
            show = _File(stream, place)
        try:
            for frame, direction in _frames(capture, interrupt, count):
                show(frame, direction)
        except BrokenPipeError:
            return nobody_reads()
        finally:
            kept = capture.frames - capture.dropped
            dropped = f", {capture.dropped} more dropped, since this was too slow for them" if capture.dropped else ""
            print(f"{kept} frames captured at {place}{dropped}", file=sys.stderr)
    return 0


def _frames(capture: FrameCapture, interrupt: Interrupt, count: int | None) -> Iterator[tuple[CapturedFrame, int]]:
    """Yield the frames of a capture as records of ERF, each with the interface that it was seen at."""
    ahead_ns = time.time_ns() - time.monotonic_ns()
    number = dropped = 0
    ended = False
    while True:
        if not ended:
            ready, _, _ = select.select([capture.fileno(), interrupt.fileno()], [], [])
            if interrupt.fileno() in ready:
                capture.end()
                ended = True
        seen = capture.read()
        if seen is None:
            return
        number += 1
        frame = seen.data + vcrc(seen.data).to_bytes(VCRC_BYTES, "little")
        direction, at_ns = LEAVES if seen.leaves else COMES, seen.at_ns + ahead_ns
        record = erf.encode_record(at_ns, frame, interface=direction, lost=capture.dropped - dropped)
        dropped = capture.dropped
        yield CapturedFrame(number, at_ns, erf.LINK_TYPE, record, len(record)), direction
        if number == count:
            capture.frames = number + dropped  # others have come meanwhile
            return


class _Lines:
    """Prints what frames are."""

    def __init__(self) -> None:
        self._finder = PacketFinder()
        self._start_ns: int | None = None

    def __call__(self, frame: CapturedFrame, direction: int) -> None:
        self._start_ns = frame.time_ns or 0 if self._start_ns is None else self._start_ns
        found = self._finder.find(frame)
        said = "no packet of InfiniBand's transports" if found is None else text_line(found, self._start_ns)
        print("out" if direction == LEAVES else "in ", said, flush=True)


class _File:
    """Writes frames into a file, each as soon as it is there."""

    def __init__(self, stream: BinaryIO, place: str) -> None:
        self._stream = stream
        self._writer = PcapngWriter(stream, (f"{place} in", f"{place} out"), erf.LINK_TYPE)
        stream.flush()

    def __call__(self, frame: CapturedFrame, direction: int) -> None:
        self._writer.write(direction, frame)
        self._stream.flush()
