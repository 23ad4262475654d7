"""The memory that the queue pairs of an RNIC take: what a NIC would keep in its cache, as this model has it.

Counted is every object that a queue pair keeps of its own: its two sides, loss recovery, congestion control, and their
containers and numbers, each once. Not counted are work requests and the memory that they name, which are a user's, and
what is the same for all queue pairs (settings, parameters, the RNIC).
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.roce.datagrams import Datagrams
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.recovery import Recovery
from testbed.protocols.roce.requester import Requester
from testbed.protocols.roce.responder import Responder

if TYPE_CHECKING:
    from testbed.protocols.roce.rnic import Rnic

_STATE: Final[tuple[type, ...]] = (
    QueuePair,
    Requester,
    Responder,
    Datagrams,
    Recovery,
    CongestionControl,
    deque,
    list,
    dict,
    set,
    int,
    float,
)
"""Objects of other types are not a queue pair's own."""
_WORD_BYTES: Final = 8
"""An attribute's, where the object has it in itself."""


def state_bytes(qps: Iterable[QueuePair]) -> int:
    """Bytes of the state of these queue pairs, each object once."""
    todo: list[object] = list(qps)
    seen = {id(one) for one in todo}
    total = 0
    while todo:
        one = todo.pop()
        total += sys.getsizeof(one)
        if isinstance(one, int | float):
            continue
        kept = gc.get_referents(one)
        attributes = getattr(one, "__dict__", None)
        if attributes is not None:  # not compiled: the size of the dictionary depends on its past
            seen.add(id(attributes))
            total += _WORD_BYTES * len(attributes)
            kept += attributes.values()
        for other in kept:
            if isinstance(other, _STATE) and id(other) not in seen:
                seen.add(id(other))
                todo.append(other)
    return total


def qp_state_bytes(rnic: Rnic) -> int:
    """Bytes of the state of an RNIC's queue pairs: with dynamic connections, of its initiators, and of as many
    responders as there were at a time."""
    total = state_bytes(rnic.qps)
    dynamic = rnic.dynamic
    if dynamic is None:
        return total
    return total + dynamic.most_at_once * dynamic.responder_bytes()
