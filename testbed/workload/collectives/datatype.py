"""Element types of a collective's arrays."""

from __future__ import annotations

from enum import StrEnum


class DataType(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def size_bytes(self) -> int:
        return 4 if self is DataType.FLOAT32 else 2

    @property
    def significand_bits(self) -> int:
        """Count the bits of a normal number's significand, the implicit one included: integers up to 2 to this power
        are exact."""
        return 24 if self is DataType.FLOAT32 else 8
