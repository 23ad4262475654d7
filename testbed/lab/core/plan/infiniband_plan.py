"""The plan of an InfiniBand back end: where its management plane runs, and which HCAs hosts have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinibandPlan:
    """A subnet beside a lab's nodes. `node` names the namespace of its management plane in operations.

    `hcas` has for each host its HCAs, by interface, and what ibsim calls them.
    """

    node: str
    hcas: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

    def has(self, host: str) -> bool:
        """Tell whether a node is a host with an HCA."""
        return any(name == host for name, _ in self.hcas)
