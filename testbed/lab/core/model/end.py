"""One end of a link, as links, tenants and messages name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a link."""

    node: str
    interface: str

    def __str__(self) -> str:
        return f"{self.node}:{self.interface}"
