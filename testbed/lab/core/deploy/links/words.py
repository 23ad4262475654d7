"""The difference of a link from what is declared, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from testbed.base.units import Duration, Rate
from testbed.lab.core.deploy.links.recorded import WireChange

TITLES = {
    "rate_bps": "rate in the lab",
    "delay_ns": "delay in lab time",
    "jitter_ns": "jitter in lab time",
    "loss": "loss",
    "loss_every": "loss, one in",
    "corruption": "corruption",
    "silent": "silent",
    "up": "up",
}


def value_text(field: str, value: Any) -> str:
    """Return a value of a link in the units that people write."""
    match field:
        case "rate_bps":
            return "unshaped" if value is None else str(Rate(value))
        case "delay_ns" | "jitter_ns":
            return str(Duration(value))
        case "loss" | "corruption":
            return f"{100 * value:.6g}%"
        case "loss_every":
            return str(value) if value else "none"
    return "yes" if value else "no"


def changed_words(change: WireChange) -> Sequence[str]:
    """Each value that a change sets, in words."""
    named = asdict(change).items()
    return [f"{TITLES[name]} {value_text(name, value)}" for name, value in named if value is not None]
