"""The machines of a pool while they are being reached, before it is known that any of them can take part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from testbed.api.pool.file import read_pool
from testbed.api.pool.machines import MachineAtWork, machine_at_work, with_each


class ReachedMachines:
    """Machines that are reached, and whose stations import, while others read scenarios. A context: those are let go
    that no pool has taken."""

    def __init__(self, text: str, kind: str) -> None:
        """`text` is a file, or targets with commas between them; `kind` says what runs there are to be, as `Backend`
        has it, and "" only asks what machines are.

        Raises `SpecError` for a file that is wrong.
        """
        self.text = text
        self.machines: Sequence[MachineAtWork] = [machine_at_work(machine) for machine in read_pool(text)]
        self._taken = False
        for machine in self.machines:
            machine.begin(kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._taken:
            with_each(self.machines, lambda machine: machine.close())

    def take(self) -> None:
        """Say that a pool has them, which lets them go."""
        self._taken = True
