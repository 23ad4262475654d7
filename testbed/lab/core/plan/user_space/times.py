"""The times that endpoints in user space go by on a lab, all in ns of lab time.

The base round trip is what `qos.base_rtt` declares, or what the links add up to. What of a declared one no link has
(NICs, switch pipelines) is added by the receiving endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from testbed.endpoints.pacing import AHEAD_PACKETS
from testbed.lab.core.fabric.base_rtt import ANSWER_BYTES, declared_base_rtt, model_base_rtt
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import PathModel

TICKS_PER_RTT = 100
"""Processes look for what has come and is due so often in a base round trip: a wake-up for each packet buys nothing.
What is due waits for half of that on average, 0.5 % of a base round trip."""
SERVING_TICKS_PER_RTT = 10
"""Processes that carry what programs send look so often: what a turn costs is shared by all that has come since. What
is due waits for half of a tick on average, each way, so that round trips are 10 % longer."""
SERVING_TICKS_OF_FAST_NICS = 20
"""Where a NIC would have sent all that it is given ahead by then (`testbed.endpoints.pacing`), and stand idle."""
LEAST_TICK_NS = 500_000
"""Below this, ticks save nothing: a wake-up takes tens of microseconds."""
LEAST_RTT_NS = 1000


class EndpointTimes:
    """The times of one lab, or of one of its networks, at the time scale `k`."""

    def __init__(self, model: Lab, k: float) -> None:
        self._model = model
        self._k = k

    @cached_property
    def idle_rtt_ns(self) -> int:
        """The longest round trip of a full packet through the idle fabric."""
        declared = declared_base_rtt(self._model)
        return (model_base_rtt(self._model) if declared is None else declared).scaled(self._k).ns

    @property
    def base_rtt_ns(self) -> int:
        """Do as `idle_rtt_ns`, no less than transports can be told."""
        return max(LEAST_RTT_NS, self.idle_rtt_ns)

    @cached_property
    def undeclared_ns(self) -> int:
        """By how much the longest path's links exceed the declared base RTT; below 0 for less."""
        declared = declared_base_rtt(self._model)
        if declared is None:
            return 0
        return round((model_base_rtt(self._model).ns - declared.ns) * self._k)

    @property
    def pipeline_ns(self) -> int:
        """The part of the declared base RTT that no link has, each way."""
        return max(0, -self.undeclared_ns // 2)

    def tick_ns(self, ticks_per_rtt: int = TICKS_PER_RTT) -> int:
        """The least time between two turns of a process that moves packets; 0 where a round trip is short."""
        tick_ns = self.base_rtt_ns // ticks_per_rtt
        return tick_ns if tick_ns >= LEAST_TICK_NS else 0

    def serving_tick_ns(self, nics: Sequence[PortPlan]) -> int:
        """Return the same for a process that has the endpoints of these NICs, and carries what programs send."""
        tick_ns = self.tick_ns(SERVING_TICKS_PER_RTT)
        packet_ns = min(nic.mtu_bytes * 8_000_000_000 // nic.rate_bps for nic in nics)
        fits = 2 * tick_ns <= AHEAD_PACKETS * packet_ns
        return tick_ns if fits else self.tick_ns(SERVING_TICKS_OF_FAST_NICS)

    def least_rtt_ns(self, there: PathModel, back: PathModel, frame_bytes: int) -> int:
        """The time of a full packet and its answer through the idle fabric."""
        delays_ns = there.least_ns + back.least_ns + 2 * self.pipeline_ns
        return delays_ns + there.serialisation_ns(frame_bytes) + back.serialisation_ns(ANSWER_BYTES)

    def held_ns(self, path: PathModel) -> int:
        """The time for which an endpoint holds what arrives over a path, beside what the kernel delays."""
        return path.endpoint_ns + self.pipeline_ns
