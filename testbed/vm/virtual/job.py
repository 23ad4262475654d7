"""Does the job of a lab VM in virtual time, in there: runs one verb, then writes what it made over the job's disk.

`python -m testbed.vm.virtual.job DIRECTORY DISK`. The directory has `job.json` and, below `files/`, the files that came
along, by the absolute names they have outside. Output goes to the second and third serial port as it comes; the
first is the console.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import termios
import time
import tty
from pathlib import Path

from testbed.vm.image.checkout import add

JOB, FILES, OUTCOME = "job.json", "files/", "outcome.json"
BASE = "/run/job/files"
"""The directory of the files in there: `virtual-init` unpacks the job into /run/job."""
START_GRID_S = 10
"""Jobs start at a multiple of this after the boot, so that what the boot took does not move them. Idle time is free."""
PORTS = ("/dev/ttyS1", "/dev/ttyS2")


def main(directory: Path, disk: str) -> None:
    """Run the verb and write an archive: its outcome first, then the files that are new or changed."""
    job = json.loads((directory / JOB).read_text())
    base = directory / FILES
    before = _times(base)
    begin = (time.monotonic() // START_GRID_S + 1) * START_GRID_S
    time.sleep(begin - time.monotonic())
    ports = [_raw(port) for port in PORTS]
    done = subprocess.run(
        [sys.executable, "-m", "testbed", *job["arguments"]],
        cwd=job["directory"],
        env={**os.environ, **job["environment"]},
        stdin=subprocess.DEVNULL,
        stdout=ports[0],
        stderr=ports[1],
        check=False,
    )
    for port in ports:
        termios.tcdrain(port)
    outcome = {
        "status": done.returncode if done.returncode >= 0 else 128 - done.returncode,
        "guest_s": time.monotonic(),
        "verb_s": time.monotonic() - begin,
    }
    with open(disk, "r+b") as device, tarfile.open(fileobj=device, mode="w|") as tar:  # noqa: PTH123
        add(tar, OUTCOME, json.dumps(outcome).encode())
        for path, at in _times(base).items():
            if before.get(path) != at:
                add(tar, f"{FILES}{path.relative_to(base)}", path.read_bytes())


def _times(base: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(base.rglob("*")) if path.is_file()}


def _raw(path: str) -> int:
    """A serial port that passes bytes on as they are."""
    port = os.open(path, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(port)
    return port


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
