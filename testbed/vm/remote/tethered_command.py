"""Runs one command on another machine for somebody at the far end of a connection, and not longer than that lasts.

Run there as a script, on the standard library alone: `python3 errand.py DIRECTORY COMMAND...`. Standard input is a
sequence of frames: four bytes of length, big-endian, and so many bytes for the command's own input; a length of
zero ends that. The end of the frames themselves is an interrupt: SIGINT, and a kill where it does not help. So a
command that undoes its work when it is interrupted does so, too, when the connection breaks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
from typing import BinaryIO

GRACE_S = 60.0
_HEADER = struct.Struct(">I")


def frame(content: bytes) -> bytes:
    """Return what carries `content` to the command; b"" ends its input."""
    return _HEADER.pack(len(content)) + content


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame's content, None where there is no more."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack(header)
    content = stream.read(size)
    return content if len(content) == size else None


def _feed(process: subprocess.Popen[bytes]) -> None:
    """Pass frames on until they end, then end the command."""
    assert process.stdin is not None
    while (content := read_frame(sys.stdin.buffer)) is not None:
        with contextlib.suppress(OSError, ValueError):  # it may not want any
            if content:
                process.stdin.write(content)
                process.stdin.flush()
            else:
                process.stdin.close()
    for number, grace_s in ((signal.SIGINT, GRACE_S), (signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
            return


def main(directory: str, command: list[str]) -> int:
    """Run it; its exit code, 128 and the number of a signal that ended it, 127 if there is no such program."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        os.chdir(directory)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        print(f"{error.filename or command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=_feed, args=(process,), daemon=True).start()
    code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    status = main(sys.argv[1], sys.argv[2:])
    sys.stdout.flush()
    os._exit(status)  # the thread may still wait for a frame
