"""Random numbers by a seed, made as they are drawn from first."""

from __future__ import annotations

from random import Random


class SeededRandom:
    """A generator that is there once somebody draws from it: it has 2.5 kB, and of most ports nobody ever does."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._made: Random | None = None

    @property
    def source(self) -> Random:
        """Return the generator, which goes on where it was."""
        made = self._made
        if made is None:
            made = self._made = Random(self._seed)
        return made
