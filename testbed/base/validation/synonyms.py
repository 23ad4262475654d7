"""Keys by the names that people give them elsewhere: in other tools, in papers, and in other sections of these files.

A word stands for the first of its keys that the section has. It is told as what was meant; nothing is read by it. What
has another value, too, as an interval has beside a rate, is in the `ELSEWHERE` of its section instead, or below with
what makes the value of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

_CALLED: Mapping[str, str] = {
    # links and ports
    "rate": "bandwidth speed capacity throughput",
    "weight": "bandwidth share",
    "delay": "latency propagation rtt",
    "down": "link_down",
    "set": "overrides override values",
    "file": "path",
    # fabrics
    "segments": "racks units su sus scalable_units tors tor_switches",
    "super_spines": "core cores superspines core_switches",
    "super_spine": "core superspine",
    "rail": "leaf tor rack",
    "ecmp": "maximum-paths maximum_paths max_paths multipath",
    "prefix": "subnet cidr",
    # queues
    "kmin": "min min_threshold",
    "kmax": "max max_threshold",
    "pmax": "prob probability max_probability drop_probability mark_probability",
    "pcp": "priority prio queue tc cos",
    "shared": "size",
    "mode": "algorithm algo type",
    # traffic
    "bytes": "size message_size msg_size length",
    "source": "src sender from",
    "destination": "dst dest receiver target to",
    "senders": "fan_in fanin n degree",
    "tensor": "tp tensor_parallel tensor_parallelism",
    "data": "dp data_parallel data_parallelism",
    "pipeline": "pp pipeline_parallel pipeline_parallelism",
    "cc": "congestion_control cca congestion",
    "path_mtu": "mtu",
    "payload_bytes": "mtu",
    # runs
    "at": "time start when",
    "until": "end stop",
    "runs": "n count times repetitions iterations trials",
    "max": "less_than at_most upper below maximum most",
    "min": "greater_than more_than at_least lower above minimum least",
}
"""By key, its other names."""


def key_called(word: str, known: Collection[str]) -> str | None:
    """Return which of the known keys a word is another name of; None for none of them."""
    word = word.lower()
    return next((key for key, others in _CALLED.items() if key in known and word in others.split()), None)


def _two_to_the(value: object) -> str:
    """The share of a dynamic threshold, which SONiC and SAI give by its exponent
    (SAI_BUFFER_PROFILE_ATTR_SHARED_DYNAMIC_TH: 2^n)."""
    known = re.fullmatch(r"[+-]?[0-9]{1,2}", str(value))
    return "2 to the power of it" if known is None else f"{2.0 ** int(known[0]):g}"


def _of_64_bits(value: object) -> str:
    return str(value) if re.fullmatch(r"[0-9a-f:]+/64", str(value)) else "fd00:1::/64"


_CONVERTED: Mapping[str, tuple[str, Callable[[object], str]]] = {
    "dynamic_th": ("alpha", _two_to_the),
    "ipv6": ("prefix6", _of_64_bits),
}
"""By a key of another tool, the one of ours, of whatever section, and what its value becomes."""


def said_otherwise(word: str, value: object) -> tuple[str, str] | None:
    """Return which key says what a word of another tool does, and with which value; None for any other word."""
    if (found := _CONVERTED.get(word)) is None:
        return None
    key, converted = found
    return key, converted(value)
