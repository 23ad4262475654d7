"""The condition of a link of a running lab now, beside what its topology declares."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.base.units import Duration, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCondition:
    """One link as it was read. `rate` is of the real fabric and `lab_rate` of the lab, both of the slower direction."""

    up: bool
    """Both ends are up and have carrier."""
    rate: Rate
    lab_rate: Rate
    declared_rate: Rate
    declared_lab_rate: Rate
    mtu_bytes: int | None = None
    """The MTU of the narrower end, where an end has another one than declared."""
    delay: Duration | None = None
    """The delay in the real fabric, the longer of both directions, where a direction has another one than declared."""
    changes: tuple[str, ...] = ()
    """In words, by direction: how it differs from what is declared, but for being down."""

    @property
    def as_declared(self) -> bool:
        return self.up and not self.changes

    @property
    def words(self) -> str:
        """ "down", or how it differs; "" for a link that is as declared."""
        return "; ".join((*(() if self.up else ("down",)), *self.changes))
