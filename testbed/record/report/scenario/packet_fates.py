"""What befell packets, by channel: the transports' own counters in words that mean the same for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.record.samples import Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """`names` are those of `Channel.counters`, of whatever transport; a channel's figure is their sum."""

    title: str
    names: tuple[str, ...]

    def of(self, counters: Mapping[str, float]) -> int:
        return int(sum(counters.get(name, 0) for name in self.names))


FATES = (
    Fate(title="Time-outs", names=("timeout",)),
    Fate(title="Inferred lost", names=("inferred_loss",)),
    Fate(title="Trimmed", names=("trimmed",)),
    Fate(title="CE-marked", names=("ce_marked", "delivered_ce")),
    Fate(title="Out of order", names=("out_of_order",)),
    Fate(title="Duplicates", names=("duplicate", "duplicate_sacks")),
    Fate(title="Gone back for", names=("rewound",)),
    Fate(title="Refused", names=("refused", "out_of_window", "rod_out_of_order", "no_room_for_responses")),
)
"""The graver first. Time-outs, losses, trimming and going back are why packets are sent again."""


def fates_of(counted: Iterable[Mapping[str, float]]) -> Sequence[Fate]:
    """Return those that befell any packet of these channels."""
    counted = list(counted)
    return [fate for fate in FATES if any(fate.of(counters) for counters in counted)]


def total(channels: Iterable[Channel]) -> Counter[str]:
    found: Counter[str] = Counter()
    for channel in channels:
        found.update(channel.counters)
    return found
