"""Runs the commands that arrive on a serial port, one after the other: the virtual machine's end of `FullKernel`.

A line of JSON each way: `{"argv": [...], "timeout_s": ...}` and `{"status": ..., "output": ..., "errors": ...}`.
The first line is sent unasked when the machine is ready. Ends when the port's other end is closed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

TIMED_OUT = 124


def answer(argv: list[str], timeout_s: float) -> dict[str, Any]:
    """Run one command. Its output goes to files: a daemon that it leaves behind may keep them open."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, timeout=timeout_s, check=False
            )
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = TIMED_OUT
            errors.write(f"\nended after {timeout_s} s".encode())
        except OSError as error:
            status = 127
            errors.write(str(error).encode())
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"status": status, "output": texts[0], "errors": texts[1]}


def main(path: str) -> None:
    with open(os.open(path, os.O_RDWR), "r+b", buffering=0) as port:  # noqa: PTH123

        def say(words: dict[str, Any]) -> None:
            text = memoryview(json.dumps(words).encode() + b"\n")
            while text:
                text = text[port.write(text) :]

        say({"ready": os.uname().release})
        heard = b""
        while chunk := port.read(65536):
            *lines, heard = (heard + chunk).split(b"\n")
            for line in lines:
                say(answer(**json.loads(line)))


if __name__ == "__main__":
    main(sys.argv[1])
