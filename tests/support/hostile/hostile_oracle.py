"""The effects that hostile datagrams may have, judged from their bytes alone and not by the code under test.

Everything here errs on the side of permission where the outcome depends on the receiver's state; what it forbids is
forbidden in any state. What it decodes it decodes with offsets of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from hostile_scenes import FOREIGN_KEY, KEY, OTHER_JOB, SIZE, Scene
from wire_pair import JOB

from testbed.protocols.datagram import Incoming
from testbed.protocols.uet.fep import Fep

_REQUESTS = {2: 12, 3: 12, 4: 8, 13: 16, 14: 16}
"""PDS types that carry SES requests to memory, and their header bytes."""
_WRITE, _ATOMIC, _FETCHING = 1, 3, 4


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


class Oracle:
    """Watches the memory of both ends of a scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._shared = {address: bytes(memory.shared) for address, memory in scene.memory.items()}
        self._foreign = {address: bytes(memory.foreign) for address, memory in scene.memory.items()}
        self._may: dict[tuple[str, int], bytearray] = {}
        for address in scene.memory:
            for key in (KEY, FOREIGN_KEY):
                self._may[address, key] = bytearray(SIZE)
        self._may_all_shared()

    def _may_all_shared(self) -> None:
        """The bytes that the scene itself writes meanwhile: WRITE and READ of bytes 0 to 3064 of the shared memory."""
        for address in self._scene.memory:
            self._may[address, KEY][: 64 + 3000] = b"\1" * (64 + 3000)

    def expect(self, fep: Fep, datagrams: Sequence[Incoming]) -> None:
        """These are about to arrive: note which bytes of memory they have the right to change."""
        if self._scene.secure:
            return  # nobody without the key has any right
        for incoming in datagrams:
            if incoming.length > len(incoming.data):
                continue
            self._note(fep.address, bytes(incoming.data))

    def _note(self, address: str, data: bytes) -> None:
        if len(data) < 4:
            return
        head = _REQUESTS.get(data[0] >> 3)
        if head is None:
            return
        kind = _number(data, 0, 2) >> 7 & 15
        ses = data[head:]
        if len(ses) < 20 or kind not in (1, 2, 3):
            return
        opcode = ses[0] & 0x3F
        if opcode not in (_WRITE, _ATOMIC, _FETCHING):
            return
        job = _number(ses, 5, 3)
        at = _number(ses, 12, 8)
        if kind == 3:
            key, length = _number(ses, 24, 8), _number(ses, 40, 4)
        elif kind == 2:
            key, length = _number(ses, 24, 8), _number(ses, 2, 2) & 0x3FFF
            at = 0 if ses[1] & 0x04 else at
        else:
            key, length = _number(ses, 10, 2) & 0xFFF, _number(ses, 2, 2) & 0x3FFF
        may = self._may.get((address, key))
        if may is None or job != (JOB if key == KEY else OTHER_JOB) or at + length > SIZE:
            return
        may[at : at + length] = b"\1" * length

    def check(self) -> None:
        """No byte has changed that nothing had the right to change."""
        for address, memory in self._scene.memory.items():
            assert memory.secret == b"s" * SIZE, "written without its key"
            assert memory.read_only == b"r" * SIZE, "written without permission"
            self._unchanged(self._may[address, KEY], self._shared[address], memory.shared)
            self._unchanged(self._may[address, FOREIGN_KEY], self._foreign[address], memory.foreign)

    @staticmethod
    def _unchanged(may: bytearray, before: bytes, now: bytearray) -> None:
        if before == now:
            return
        wrong = [at for at in range(SIZE) if before[at] != now[at] and not may[at]]
        assert not wrong, f"bytes {wrong[:8]} ... written by nobody who may"
