"""The number of TCP segments that the kernel dropped in a namespace because they were not signed (RFC 2385)."""

from __future__ import annotations

from pathlib import Path

NAME = "TCPMD5NotFound"
"""The counter of TcpExt in /proc/net/netstat for a segment that should have been signed (LINUX_MIB_TCPMD5NOTFOUND)."""


class UnsignedCount:
    """The counter of the namespace that the calling thread was in when this was made."""

    def __init__(self) -> None:
        self._file = Path("/proc/thread-self/net/netstat").open("rb", buffering=0)  # noqa: SIM115  # closed by `close`

    def read(self) -> int:
        """Return the count now; it never goes down."""
        self._file.seek(0)
        return parse_unsigned(self._file.read().decode("ascii"))

    def close(self) -> None:
        self._file.close()


def parse_unsigned(text: str) -> int:
    """Find the count in the text of /proc/net/netstat: lines in pairs, of names and of values. 0 where it is not."""
    lines = [line.split() for line in text.splitlines()]
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        if names[0] == "TcpExt:" and NAME in names:
            return int(values[names.index(NAME)])
    return 0
