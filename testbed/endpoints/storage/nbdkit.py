"""nbdkit as the server of a storage target: its command line, and what its version can do.

The medium is a filter before a file: `delay` takes its latency from each request, `rate` limits the bytes of all
connections together (nbdkit-delay-filter(1), nbdkit-rate-filter(1)).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NBD_PORT = 10809
"""Registered with IANA for NBD."""
BURST_S = 0.05
"""The part of the medium's rate that passes at once after a pause, where nbdkit can be told; else 2 s of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NbdExport:
    """An export of one server, and where it is: the medium's rate in bytes/s (0: no limit), its latency in us, and how
    many requests of a connection are worked on at once."""

    address: str
    port: int
    path: str
    rate: int = 0
    latency_us: int = 0
    depth: int = 16

    def arguments(self, *, can_limit_bursts: bool) -> list[str]:
        """Return the server's command line. It stays in the foreground, and ends with whoever started it."""
        filters, values = [], []
        if self.latency_us:
            milliseconds = max(1, round(self.latency_us / 1000))
            filters.append("--filter=delay")
            values += [f"rdelay={milliseconds}ms", f"wdelay={milliseconds}ms"]
        if self.rate:
            filters.append("--filter=rate")
            values.append(f"rate={8 * self.rate}")
            values += [f"burstiness={BURST_S}"] if can_limit_bursts else []
        return [
            "nbdkit", "--foreground", "--exit-with-parent", "--newstyle", "-i", self.address, "-p", str(self.port),
            f"--threads={self.depth}", *filters, "file", f"file={self.path}", *values,
        ]  # fmt: skip

    @property
    def place(self) -> Mapping[str, str]:
        """Return the options of a job of fio that is done here."""
        return {"uri": f"nbd://{self.address}:{self.port}/"}


HELP_OF_RATE = ("nbdkit", "--filter=rate", "null", "--help")
"""Prints the parameters of the rate filter: `burstiness` came with nbdkit 1.36."""


def can_limit_bursts(help_text: str) -> bool:
    """Tell by the output of `HELP_OF_RATE` whether the rate filter can be told how large a burst may be."""
    return "burstiness=" in help_text
