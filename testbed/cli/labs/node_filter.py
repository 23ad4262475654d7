"""Patterns of node names, as the option `--node-filter` has them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Patterns of node names, as `--node-filter` has them: `leaf*,spine1`."""

    patterns: tuple[str, ...]

    @classmethod
    def parse(cls, text: str | None) -> NodeFilter:
        """Read comma-separated patterns; None accepts every node."""
        return cls(tuple(pattern.strip() for pattern in (text or "*").split(",")))

    def accepts(self, node: str) -> bool:
        """Whether a pattern matches the node's name."""
        return any(fnmatchcase(node, pattern) for pattern in self.patterns)
