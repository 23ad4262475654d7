"""Keys by the names that people give them elsewhere: in other tools, in papers, and in other sections of these files.

A word stands for the first of its keys that the section has. It is told as what was meant; nothing is read by it. What
has another value, too, as an interval has beside a rate, is in the `ELSEWHERE` of its section instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
