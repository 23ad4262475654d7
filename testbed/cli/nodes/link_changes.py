"""Changes of links as the verbs of `link` read them from their options, and as they show them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.base.errors import TestbedError
from testbed.base.units import SHARE, Duration, QuantityError, Rate, split_quantity
from testbed.lab.core.deploy.links.changes import LinkChange, LinkDirection
from testbed.lab.core.deploy.links.recorded import WireChange
from testbed.lab.core.model import DelayBy


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """The options of `link set` as they were written; None for what was not. `lab_rate` says how `rate` is meant."""

    rate: str | None = None
    lab_rate: bool = False
    delay: str | None = None
    jitter: str | None = None
    loss: str | None = None
    loss_every: int | None = None
    burst: float | None = None
    corruption: str | None = None
    silent: bool | None = None

    def change(self) -> LinkChange:
        """Work out the change that the options ask for. Raises `TestbedError` (exit code 2) where they ask for none."""
        chosen: dict[str, Any] = {"loss_every": self.loss_every, "burst": self.burst, "silent": self.silent}
        if self.lab_rate and self.rate is None:
            raise wrong("--lab-rate says how --rate is meant", "for example --rate 5M --lab-rate")
        if self.rate is not None:
            chosen |= self._chosen_rate(self.rate)
        if self.delay is not None:
            chosen["delay"] = _quantity(Duration, "--delay", self.delay)
        if self.jitter is not None:
            chosen["jitter"] = _quantity(Duration, "--jitter", self.jitter)
        if self.loss is not None:
            chosen["loss"] = parse_share("--loss", self.loss)
        if self.corruption is not None:
            chosen["corruption"] = parse_share("--corruption", self.corruption)
        try:
            return LinkChange(**chosen)
        except ValueError as error:
            raise wrong(str(error), "`testbed link set --help` lists what can be changed") from error

    def _chosen_rate(self, rate: str) -> dict[str, Any]:
        if split_quantity(rate)[1] not in SHARE.units:
            return {"lab_rate" if self.lab_rate else "rate": _quantity(Rate, "--rate", rate)}
        if self.lab_rate:
            raise wrong(f"--rate {rate} is a share of the declared rate, in the lab as in the fabric")
        return {"rate_share": parse_share("--rate", rate, most=math.inf)}


def parse_share(option: str, text: str, *, most: float = 1) -> float:
    """Read a share, "0.1%" as 0.001, of `most` at most. A plain number is refused: `tc` counts percent."""
    try:
        share = float(SHARE.read(text))
    except QuantityError as error:
        raise wrong(f"{option} {text}: {error}", error.hint) from error
    if share and split_quantity(text) == (text.strip(), "") and "/" not in text:
        raise wrong(f"{option} {text}: of a hundred, or of one?", f"write {share:g}%, or {100 * share:g}%")
    if not 0 <= share <= most:
        raise wrong(f"{option} {text}: must be from 0% to 100%")
    return share


def _quantity(kind: type[Rate | Duration], option: str, text: str) -> Rate | Duration:
    try:
        return kind.parse(text)
    except QuantityError as error:
        raise wrong(f"{option} {text}: {error}", error.hint) from error


def wrong(message: str, hint: str | None = None) -> TestbedError:
    """Make an error about what was asked for, which ends the command with exit code 2."""
    error = TestbedError(message, hint=hint)
    error.exit_code = 2
    return error


_TITLES = {
    "rate_bps": "rate in the lab",
    "delay_ns": "delay in lab time",
    "jitter_ns": "jitter in lab time",
    "loss": "loss",
    "loss_every": "loss, one in",
    "corruption": "corruption",
    "silent": "silent",
    "up": "up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRow:
    """What can be changed of a link: as declared, as it was set, and as it is."""

    port: str
    to: str
    what: str
    declared: str | None = None
    set: str | None = None
    actual: Any


def direction_rows(direction: LinkDirection, *, everything: bool) -> Iterator[ValueRow]:
    """Yield declared, changed and actual values side by side; without `everything` only those that were changed."""
    declared, change = asdict(direction.declared), asdict(direction.change)
    for field, title in _TITLES.items():
        if change[field] is None and not everything:
            continue
        is_delayed = field == "delay_ns" and direction.delay_by is not DelayBy.IGNORE
        yield ValueRow(
            port=direction.port,
            to=direction.peer,
            what=f"{title} (by {direction.delay_by.value})" if is_delayed else title,
            declared=_text(field, declared[field]),
            set="" if change[field] is None else _text(field, change[field]),
            actual=_text(field, direction.actual[field]) if field in direction.actual else "",
        )
    if everything:
        yield ValueRow(port=direction.port, to=direction.peer, what="carrier", actual=direction.actual["carrier"])


def _text(field: str, value: Any) -> str:
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


def direction_document(direction: LinkDirection) -> dict[str, Any]:
    """Put one direction of a link into JSON data."""
    return {
        "port": direction.port,
        "peer": direction.peer,
        "delay_by": direction.delay_by.value,
        "declared": asdict(direction.declared),
        "changed": {name: value for name, value in asdict(direction.change).items() if value is not None},
        "now": asdict(direction.now),
        "actual": dict(direction.actual),
    }


def direction_sentence(direction: LinkDirection) -> str:
    """Tell a person what one direction of a link does now that it is changed."""
    text = f"{direction.port} -> {direction.peer}: {', '.join(changed_words(direction.change)) or 'as declared'}"
    if direction.delay_by is DelayBy.ENDPOINT and (direction.change.delay_ns or direction.change.jitter_ns):
        text += "\n  delay by the endpoints: transports of ours that start from now on hold it; TCP gets none"
    return text


def changed_words(change: WireChange) -> Sequence[str]:
    """Each value that a change sets, in words."""
    named = asdict(change).items()
    return [f"{_TITLES[name]} {_text(name, value)}" for name, value in named if value is not None]
