"""The numbers of rail switches among all of a fabric, from which their addresses and AS numbers follow.

Usually there are numbers for 31 pods, in a pod for 64 segments, and in a segment for 32 rail switches: 8 for each of 4
ports of a NIC. The number of a switch follows from its place alone then, so that no pod, segment or rail that is added
renumbers another.

A fabric that is larger than that in one of them has a numbering of its own, which is written into the places of its
rail switches (`Place.block`): a pod has room for the next power of two of segments, and a segment for those of ports
and of rails. What is added within that renumbers nobody.
"""

from __future__ import annotations

from testbed.lab.core.fabric.designs import power_of_two
from testbed.lab.core.fabric.shape import Shape

PODS = 31
SEGMENTS_PER_POD = 64
SWITCHES_PER_SEGMENT = 32
SWITCHES_PER_PLANE = 8


class RailSwitchNumbers:
    """The numbers of the rail switches of a shape, from 1."""

    def __init__(self, shape: Shape) -> None:
        self._by_port = len(shape.ports) > 1
        self._usual = _is_usual(shape)
        if self._usual:
            self._segments, self._ports, self._indexes = SEGMENTS_PER_POD, 1, SWITCHES_PER_SEGMENT
        else:
            self._segments = power_of_two(shape.segments)
            self._ports, self._indexes = power_of_two(len(shape.ports)), power_of_two(shape.rail_switches)

    def block(self, pod: int, segment: int, index: int, plane: int) -> int:
        """Return `Place.block` of a rail switch. Planes of rails share the numbers of their segment's switches."""
        if self._usual and (self._by_port or not plane):
            return 0
        port = plane - 1 if self._by_port else 0
        before = (pod - 1) * self._segments + segment - 1
        return (before * self._ports + port) * self._indexes + index


def _is_usual(shape: Shape) -> bool:
    """Tell whether every rail switch has a usual number."""
    if shape.pods > PODS or shape.segments > SEGMENTS_PER_POD:
        return False
    if len(shape.ports) == 1:
        return shape.rail_switches <= SWITCHES_PER_SEGMENT
    return len(shape.ports) * SWITCHES_PER_PLANE <= SWITCHES_PER_SEGMENT and shape.rail_switches <= SWITCHES_PER_PLANE
