"""From what was sampled of the data path while traffic ran to the samples of ports that are kept beside a record."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from testbed.lab.observe.port_table import PortTable
from testbed.lab.observe.sampler import Samples
from testbed.record.port_samples import PortSamples

MOST_TIMES = 600
"""The most moments of a run that are kept; of more, neighbours are put together."""
SENT, WAITING = "queues.out_bytes", "queues.bytes"
_LOST = ("queues.tail_packets", "queues.buffer_packets", "queues.wred_packets", "queues.headroom_packets")
_WIRE = "ingress.lost_packets"
_MARKED, _LEFT = "queues.ce_packets", "queues.out_packets"
_PAUSED, _PAUSED_SINCE = "pauses.paused_ns", "pauses.paused_since"
COLUMNS = (SENT, WAITING, *_LOST, _WIRE, _MARKED, _LEFT, _PAUSED, _PAUSED_SINCE)
"""The columns that a sampler copies for them."""
MOST_WORDS = 16_384
"""Queues times columns that are copied ten times a second; a larger lab has what its ports have sent alone."""


def port_samples(samples: Samples, table: PortTable, begin_ns: int) -> PortSamples | None:
    """Return the samples of ports by name, counted from `begin_ns` (CLOCK_MONOTONIC); None where too few were taken,
    or not all of these columns."""
    if len(samples) < 2 or any(name not in samples.columns for name in COLUMNS):
        return None
    step = max(1, -(-len(samples) // MOST_TIMES))
    keep = np.arange(0, len(samples), step)
    if len(keep) < 2:
        return None
    numbers = sorted({port for port, _ in samples.queues})
    by_port = _ByPort(samples, numbers, keep)
    seconds = np.diff(samples.times_ns[keep])[:, None] / 1e9
    room = table.rate_bps[numbers] * seconds
    peers = {int(table.peer[port]): place for place, port in enumerate(numbers)}
    lost = sum((by_port.grown(name) for name in _LOST), np.zeros((len(keep) - 1, len(numbers))))
    lost = lost + _of_peers(by_port.grown(_WIRE), numbers, peers)
    columns = {
        "use": _share(8 * by_port.grown(SENT), room),
        "queue": by_port.most(WAITING),
        "marks": _share(by_port.grown(_MARKED), by_port.grown(_LEFT)),
        "pauses": by_port.paused(seconds),
        "losses": np.ceil(lost / seconds),
    }
    return PortSamples(
        at_s=np.round((samples.times_ns[keep[1:]] - begin_ns) / 1e9, 3),
        ports=tuple(table.place(port) for port in numbers),
        columns=_whole(columns),
    )


def _whole(columns: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.int32]]:
    return {name: np.clip(np.rint(values), -1, 2**31 - 1).astype(np.int32) for name, values in columns.items()}


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Thousandths; 0 where there is nothing to have a share of."""
    return np.asarray(np.divide(1000 * part, whole, out=np.zeros(part.shape), where=whole > 0))


def _of_peers(received: NDArray[np.float64], numbers: list[int], peers: Mapping[int, int]) -> NDArray[np.float64]:
    """Give each port what its wire lost, which the port at its other end has counted."""
    found = np.zeros(received.shape)
    for place, port in enumerate(numbers):
        if (sender := peers.get(port)) is not None:
            found[:, sender] = received[:, place]
    return found


class _ByPort:
    """The samples of queues put together for ports: `keep` are the rows that are kept."""

    def __init__(self, samples: Samples, numbers: list[int], keep: NDArray[np.int64]) -> None:
        self._samples = samples
        self._keep = keep
        place = {port: index for index, port in enumerate(numbers)}
        owners = np.array([place[port] for port, _ in samples.queues])
        self._order = np.argsort(owners, kind="stable")
        self._starts = np.searchsorted(owners[self._order], np.arange(len(numbers)))

    def _column(self, name: str) -> NDArray[np.float64]:
        """Return a column by time and queue, the queues of a port beside each other."""
        return self._samples.columns[name][:, self._order].astype(np.float64)

    def grown(self, name: str) -> NDArray[np.float64]:
        """Return the growth of a counter between the rows that are kept, over the queues of each port."""
        growth = np.maximum(np.diff(self._column(name)[self._keep], axis=0), 0)
        return np.asarray(np.add.reduceat(growth, self._starts, axis=1))

    def most(self, name: str) -> NDArray[np.float64]:
        """Return the most that the queues of a port held together, between the rows that are kept."""
        held = np.add.reduceat(self._column(name), self._starts, axis=1)
        return np.asarray(np.maximum.reduceat(held, self._keep, axis=0)[:-1])

    def paused(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Thousandths of the time in which a queue of each port was paused, of the one that was it most."""
        since, now = self._column(_PAUSED_SINCE), self._samples.times_ns[:, None].astype(np.float64)
        total = self._column(_PAUSED) + np.where(since > 0, np.maximum(now - since, 0), 0)
        growth = np.maximum(np.diff(total[self._keep], axis=0), 0)
        most = np.maximum.reduceat(growth, self._starts, axis=1)
        return np.minimum(most / seconds / 1e6, 1000)
