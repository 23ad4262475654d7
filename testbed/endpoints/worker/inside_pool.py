"""A rank that is a region of pooled memory: what was granted of it, and where in that the bytes of a transfer are.

Each rank that uses the region has a window of its own, in which what it writes stands one behind the other. A read that
restores what was written reads it from there, be it by the window of who wrote it or, of another rank, by that rank's
view of it; other reads are of what stands behind. Bytes that are traffic alone are stored and loaded as any.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.program import PoolPlace, Step
from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.endpoint import Endpoint
from testbed.protocols.scale_up.domain.pool import Grant, PoolExhausted, Region
from testbed.protocols.scale_up.domain.windows import WindowReference


class PooledRank:
    """The region that a rank is, and its devices' ends."""

    def __init__(self, name: str, place: PoolPlace, devices: Sequence[Endpoint]) -> None:
        """Grants what the program says. Raises `TrafficError` where there is not so much."""
        self.devices = tuple(devices)
        self._name = name
        self._granted: dict[int, WindowReference] = {}
        """By rank, the name of its window."""
        self._views: dict[int, tuple[Grant, WindowReference]] = {}
        """By the rank whose memory it is, what others may read, and its name, which they do not forget when it is
        withdrawn."""
        self._used: dict[int, int] = {}
        """By rank, the bytes of its grant that have a meaning already."""
        self._written: dict[int, tuple[int, int]] = {}
        """By number of a transfer, whose memory has its bytes, and from where on."""
        try:
            self.region = Region(devices, capacity_bytes=place.capacity_bytes, granule=place.granule_bytes)
            for grant in place.grants:
                made = self.region.grant(grant.size_bytes, [grant.gpu], grant.rights)
                self._granted[grant.rank] = made.reference()
                if grant.readers:
                    view = made.share(grant.readers)
                    self._views[grant.rank] = view, view.reference()
        except (UsageError, PoolExhausted) as error:
            raise TrafficError(f"{name}: {error}") from error

    def withdraw_view(self, owner: int) -> None:
        """Let nobody else read any more what a rank keeps here. Who asks by the name that it had is refused."""
        if owner in self._views:
            self._views[owner][0].withdraw()

    def place(self, step: Step) -> tuple[WindowReference, int]:
        """Return the window by which a transfer's rank reaches its bytes, and where they begin in it.

        Raises `TrafficError` for a rank that was granted nothing.
        """
        who = step.begins_at
        if step.restores is not None and step.restores in self._written:
            owner, offset = self._written[step.restores]
            name = self._granted[owner] if owner == who else self._views[owner][1] if owner in self._views else None
        else:
            owner, name = who, self._granted.get(who)
            offset = self._used.get(owner, 0)
            self._used[owner] = offset + step.size_bytes
            if not step.pulled:
                self._written[step.number] = owner, offset
        if name is None:
            raise TrafficError(f"{self._name}: rank {who} was granted nothing there")
        return name, offset
