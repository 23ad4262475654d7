"""What the link layer of scale-up links costs for each frame, in C, beside a copy of that frame.

Both ends are in it: credits, the replay window, number and check sequence, decoding with its check, ACKs and
CF_Updates. A small frame shows the machinery alone, a large one its two passes of the check sequence. Time is that of
the CPU.
"""

from __future__ import annotations

import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest
from figures import Figure, judge

from testbed.base.datapath.build import compile_c

pytestmark = [pytest.mark.bench]

SOURCE = Path(__file__).with_name("link_engine.c")
ROUNDS = 200_000


def measure(program: Path, frame_bytes: int, lost_of: int = 0) -> tuple[float, float, int]:
    """Nanoseconds of a copy, of a frame through both ends, and replays; the best of three, for others run beside it."""
    runs = []
    for _ in range(3):
        argv = [str(program), str(frame_bytes), str(ROUNDS), str(lost_of)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120, stdin=subprocess.DEVNULL)
        copy_ns, frame_ns, replays = done.stdout.split()
        runs.append((float(copy_ns), float(frame_ns), int(replays)))
    return min(run[0] for run in runs), min(run[1] for run in runs), runs[0][2]


def test_a_frame_through_both_ends(tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    protocols = Path(str(resources.files("testbed.protocols")))
    native = protocols / "scale_up/native"
    program = tmp_path / "link_engine"
    compile_c(
        [SOURCE, *sorted(native.glob("*.c"))],
        program,
        ["-std=gnu11", "-O2", "-Wall", *("-I", str(native)), *("-I", str(protocols))],
    )
    figures = []
    for frame_bytes, lost_of, most in ((128, 0, 0.4), (8192, 0, 5.0), (8192, 100, 6.0)):
        copy_ns, frame_ns, replays = measure(program, frame_bytes, lost_of)
        assert (replays > 0) == (lost_of > 0)
        what = f"link layer, {frame_bytes} B" + (f", 1 of {lost_of} lost" if lost_of else "")
        figures.append(Figure(f"{what}: both ends", frame_ns / 1000, at_most=most, unit="us"))
        if frame_bytes > 1000:
            figures.append(Figure(f"{what}: against a copy", frame_ns / copy_ns, at_most=8.0, unit="x", ratio=True))
        print(f"{what}: {frame_ns:.0f} ns, copy {copy_ns:.0f} ns, {1e9 / frame_ns:,.0f} frames/s")
    judge(*figures)
