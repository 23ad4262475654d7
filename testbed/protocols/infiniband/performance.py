"""The performance management agent (PMA) of a subnet's nodes: it answers datagrams of `perfquery` and its like from the
counters of the data path.

A question is a management datagram (MAD) of 256 bytes to a LID; its answer has the counters of a port, or of all ports
of a switch together. `Set` begins counters anew, which the data path is not told: the agent keeps their values. Narrow
counters stop at their largest value, as the specification has it.

Source: InfiniBand Architecture Specification volume 1, 13.4 (MADs), 16.1 (performance management), 16.1.3.5
(PortCounters), 16.1.4.11 (PortCountersExtended). The layout of fields is that of libibmad, which the tools are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from testbed.protocols.infiniband.data_path import PathNode

MAD_BYTES: Final = 256
PERFORMANCE_CLASS: Final = 0x04
GET, SET, GET_RESPONSE = 0x01, 0x02, 0x81
CLASS_PORT_INFO, PORT_COUNTERS, PORT_COUNTERS_EXTENDED = 0x0001, 0x0012, 0x001D
PORT_VL_PACKETS, PORT_VL_DATA, PORT_VL_XMIT_WAIT = 0x0019, 0x001A, 0x001C
ALL_PORTS: Final = 255
UNKNOWN_METHOD, INVALID_FIELD = 3 << 2, 7 << 2
"""Two values of the status of a MAD: method and attribute are not supported together, a field is not valid (13.4.7)."""
_DATA_AT: Final = 64
_ALL_PORT_SELECT, _EXTENDED_WIDTH, _XMIT_WAIT = 1 << 8, 1 << 9, 1 << 12
_MORE_EXTENDED: Final = 1 << 1
"""A bit of the second capability mask: PortCountersExtended has the errors, too."""
_RESPONSE_TIME: Final = 18
"""4.096 us x 2^18: about a second."""
VLS: Final = 16

Read = Callable[[str, int], Mapping[str, int]]
"""Returns the counters of a port of a node by their names here: those of `NAMES`, and `vl_data_3` and the like."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    at: int
    """Bits from the first of the attribute's."""
    bits: int
    selected_by: int
    """The bit of the mask of counters that a `Set` begins anew: those of CounterSelect, then of CounterSelect2."""


NAMES: Final = (
    *("symbol_errors", "link_recoveries", "link_downed", "rcv_errors", "rcv_physical_errors"),
    *("rcv_switch_relay_errors", "xmit_discards", "xmit_constraint_errors", "rcv_constraint_errors"),
    *("integrity_errors", "buffer_overruns", "vl15_dropped", "xmit_data", "rcv_data", "xmit_pkts", "rcv_pkts"),
    "xmit_wait",
)
_PLACES: Final = ((32, 16), (48, 8), (56, 8), (64, 16), (80, 16), (96, 16), (112, 16), (128, 8), (136, 8), (152, 4))
_MORE_PLACES: Final = ((156, 4), (176, 16), (192, 32), (224, 32), (256, 32), (288, 32), (320, 32))
_COUNTERS: Final = tuple(
    _Field(name, at, bits, number)
    for number, (name, (at, bits)) in enumerate(zip(NAMES, (*_PLACES, *_MORE_PLACES), strict=True))
)
_TRAFFIC: Final = ("xmit_data", "rcv_data", "xmit_pkts", "rcv_pkts")
_UNICAST: Final = ("xmit_pkts", "rcv_pkts")
"""All frames of the data path are unicast."""
_EXTENDED: Final = (
    *(_Field(name, 64 + 64 * number, 64, number) for number, name in enumerate((*_TRAFFIC, *_UNICAST))),
    *(_Field(name, 576 + 64 * number, 64, 16 + number) for number, name in enumerate((*NAMES[:12], "xmit_wait"))),
)
_LAYOUTS: Final = {
    PORT_COUNTERS: _COUNTERS,
    PORT_COUNTERS_EXTENDED: _EXTENDED,
    PORT_VL_PACKETS: tuple(_Field(f"vl_packets_{vl}", 32 + 16 * vl, 16, vl) for vl in range(VLS)),
    PORT_VL_DATA: tuple(_Field(f"vl_data_{vl}", 32 + 32 * vl, 32, vl) for vl in range(VLS)),
    PORT_VL_XMIT_WAIT: tuple(_Field(f"vl_xmit_wait_{vl}", 32 + 16 * vl, 16, vl) for vl in range(VLS)),
}


class PerformanceAgent:
    """The agents of all nodes of a subnet."""

    def __init__(self, nodes: Sequence[PathNode], read: Read) -> None:
        self._nodes = {node.lid: node for node in nodes if node.lid}
        self._read = read
        self._begun: dict[tuple[str, int], dict[str, int]] = {}
        """By port, the values that counters are counted from since they were begun anew."""

    def answer(self, lid: int, question: bytes) -> bytes | None:
        """Return the answer to a MAD that is sent to a LID; None where nobody answers."""
        node = self._nodes.get(lid)
        if node is None or len(question) != MAD_BYTES or question[1] != PERFORMANCE_CLASS:
            return None
        method, attribute = question[3], int.from_bytes(question[16:18], "big")
        if method not in (GET, SET):
            return None  # an answer, or a method that has none
        data = bytearray(question[_DATA_AT:])
        status = self._serve(node, method, attribute, data)
        head = bytearray(question[:_DATA_AT])
        head[3] = GET_RESPONSE
        head[4:6] = status.to_bytes(2, "big")
        return bytes(head + data)

    def _serve(self, node: PathNode, method: int, attribute: int, data: bytearray) -> int:
        """Do what is asked and put the answer into `data`; the status comes back."""
        if attribute == CLASS_PORT_INFO and method == GET:
            data[:] = _class_port_info()
            return 0
        layout = _LAYOUTS.get(attribute)
        if layout is None:
            return UNKNOWN_METHOD
        ports = _selected(node, data[1])
        if not ports:
            return INVALID_FIELD
        if method == SET:
            self._begin(node, ports, layout, _chosen(attribute, data))
        total = dict.fromkeys((field.name for field in layout), 0)
        for port in ports:
            for name, value in self._counted(node, port):
                if name in total:
                    total[name] += value
        for field in layout:
            _put(data, field, total[field.name])
        return 0

    def _begin(self, node: PathNode, ports: Sequence[int], layout: Sequence[_Field], chosen: int) -> None:
        names = {field.name for field in layout if chosen >> field.selected_by & 1}
        for port in ports:
            now = self._read(node.name, port)
            begun = self._begun.setdefault((node.name, port), {})
            begun.update((name, now[name]) for name in names if name in now)

    def _counted(self, node: PathNode, port: int) -> Iterator[tuple[str, int]]:
        begun = self._begun.get((node.name, port), {})
        for name, value in self._read(node.name, port).items():
            yield name, value - begun.get(name, 0)


def _selected(node: PathNode, port: int) -> Sequence[int]:
    if port == ALL_PORTS:
        return range(1, node.ports + 1)
    return (port,) if 1 <= port <= node.ports else ()


def _chosen(attribute: int, data: bytes | bytearray) -> int:
    """The bits of the counters that a `Set` names, as `_Field.selected_by` has them."""
    first = int.from_bytes(data[2:4], "big")
    if attribute == PORT_COUNTERS:
        return first | (data[18] & 1) << 16
    if attribute == PORT_COUNTERS_EXTENDED:
        return first & 0xFF | int.from_bytes(data[4:8], "big") << 16
    return first


def _put(data: bytearray, field: _Field, value: int) -> None:
    value = min(value, (1 << field.bits) - 1)
    at, size = field.at // 8, max(1, field.bits // 8)
    if field.bits == 4:
        data[at] = data[at] & 0x0F | value << 4 if field.at % 8 == 0 else data[at] & 0xF0 | value
    else:
        data[at : at + size] = value.to_bytes(size, "big")


def _class_port_info() -> bytes:
    capabilities = _ALL_PORT_SELECT | _EXTENDED_WIDTH | _XMIT_WAIT
    head = bytes((1, 1)) + capabilities.to_bytes(2, "big") + (_MORE_EXTENDED << 5 | _RESPONSE_TIME).to_bytes(4, "big")
    return head.ljust(MAD_BYTES - _DATA_AT, b"\0")
