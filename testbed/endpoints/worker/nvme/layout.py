"""Where the bytes of transfers are in the namespace of a target."""

from __future__ import annotations

BLOCK_BYTES = 512
STEP_BYTES = 1 << 32
"""Of the namespace, for each step."""


def whole_blocks(length: int) -> int:
    """Return the bytes of the blocks that so many bytes are in."""
    return -(-length // BLOCK_BYTES) * BLOCK_BYTES
