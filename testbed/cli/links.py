"""The verbs `link set`, `show`, `reset`, `down` and `up`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from testbed.cli.labs import open_lab
from testbed.cli.output import Format, emit_rows
from testbed.deploy.links.changes import LinkChange, LinkControl, LinkDirection
from testbed.errors import TestbedError
from testbed.model import DelayBy
from testbed.units import Duration, Rate

_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)\s*%$")


def change_of(
    *,
    rate: str | None = None,
    lab_rate: bool = False,
    delay: str | None = None,
    jitter: str | None = None,
    loss: str | None = None,
    loss_every: int | None = None,
    corruption: str | None = None,
    silent: bool | None = None,
) -> LinkChange:
    """The change that these options ask for. Raises `TestbedError` (exit code 2) for what is none."""
    chosen: dict[str, Any] = {"loss_every": loss_every, "silent": silent}
    if lab_rate and rate is None:
        raise _wrong("--lab-rate says how --rate is meant", "for example --rate 5M --lab-rate")
    if rate is not None:
        if _PERCENT.match(rate):
            if lab_rate:
                raise _wrong(f"--rate {rate} is a share of the declared rate, in the lab as in the fabric")
            chosen["rate_share"] = parse_share("--rate", rate, most=None)
        else:
            chosen["lab_rate" if lab_rate else "rate"] = _quantity(Rate, "--rate", rate)
    if delay is not None:
        chosen["delay"] = _quantity(Duration, "--delay", delay)
    if jitter is not None:
        chosen["jitter"] = _quantity(Duration, "--jitter", jitter)
    if loss is not None:
        chosen["loss"] = parse_share("--loss", loss)
    if corruption is not None:
        chosen["corruption"] = parse_share("--corruption", corruption)
    try:
        return LinkChange(**chosen)
    except ValueError as error:
        raise _wrong(str(error), "`testbed link set --help` lists what can be changed") from error


def parse_share(option: str, text: str, *, most: float | None = 100.0) -> float:
    """ "0.1%" as 0.001. `most` percent at most, None: any."""
    match = _PERCENT.match(text)
    if match is None:
        raise _wrong(f"{option} {text}: expected a percentage such as 0.1%", "the % sign is part of it")
    percent = float(match[1])
    if most is not None and percent > most:
        raise _wrong(f"{option} {text}: more than {most:g}%")
    return percent / 100


def _quantity(kind: type[Rate | Duration], option: str, text: str) -> Rate | Duration:
    try:
        value = kind.parse(text)
    except ValueError as error:
        raise _wrong(f"{option} {text}: {error}") from error
    if not text.strip()[-1].isalpha():
        raise _wrong(f"{option} {text}: a unit is missing", f"for example {kind.EXAMPLE}")
    return value


def _wrong(message: str, hint: str | None = None) -> TestbedError:
    error = TestbedError(message, hint=hint)
    error.exit_code = 2
    return error


def set_link(name: str | None, port: str, change: LinkChange, *, both: bool) -> None:
    """Change what a port sends, and say what it is now."""
    lab = open_lab(name)
    with LinkControl(lab) as control:
        control.set(port, change, both=both)
        for key in _ends(control, port, both):
            print(_sentence(control.show(key)))


def set_up(name: str | None, port: str, *, up: bool) -> None:
    """Take one end of a link down or up."""
    lab = open_lab(name)
    with LinkControl(lab) as control:
        control.set(port, LinkChange(up=up))
        print(f"{port} is {'up' if up else 'down'} (other end {control.show(port).peer})")


def reset(name: str | None, port: str | None, *, every: bool) -> None:
    """Bring a link, or all of them, back to what the topology declares."""
    if (port is None) != every:
        raise _wrong("name a port, or say --all", "for example `testbed link reset p1-s1-h1:rail1`")
    lab = open_lab(name)
    with LinkControl(lab) as control:
        if port is None:
            changed = control.reset_all()
            print(f"{len(changed)} directions are as declared again" if changed else "nothing was changed")
            return
        control.reset(port)
        print(f"{port} and {control.show(port).peer} are as declared")


def show(name: str | None, port: str | None, form: Format) -> None:
    """Declared and changed values side by side: of one link, or of all that were changed."""
    lab = open_lab(name)
    with LinkControl(lab) as control:
        keys = control.changed() if port is None else _ends(control, port, True)
        directions = [control.show(key) for key in keys]
    document = [_document(item) for item in directions]
    if port is None and not directions and form is Format.TABLE:
        print("every link is as declared; `testbed link show NODE:IF` shows one")
        return
    rows = [row for item in directions for row in _rows(item, everything=port is not None)]
    emit_rows(rows, ["port", "to", "what", "declared", "set", "actual"], form, json_document=document)


def _ends(control: LinkControl, port: str, both: bool) -> list[str]:
    return [port, control.show(port).peer] if both else [port]


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


def _rows(direction: LinkDirection, *, everything: bool) -> list[dict[str, Any]]:
    declared, change = asdict(direction.declared), asdict(direction.change)
    rows = []
    for field, title in _TITLES.items():
        if change[field] is None and not everything:
            continue
        what = title
        if field == "delay_ns" and direction.delay_by is not DelayBy.IGNORE:
            what += f" (by {direction.delay_by.value})"
        rows.append(
            {
                "port": direction.port,
                "to": direction.peer,
                "what": what,
                "declared": _text(field, declared[field]),
                "set": "" if change[field] is None else _text(field, change[field]),
                "actual": _text(field, direction.actual[field]) if field in direction.actual else "",
            }
        )
    if everything:
        rows.append(
            {"port": direction.port, "to": direction.peer, "what": "carrier", "actual": direction.actual["carrier"]}
        )
    return rows


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


def _document(direction: LinkDirection) -> dict[str, Any]:
    return {
        "port": direction.port,
        "peer": direction.peer,
        "delay_by": direction.delay_by.value,
        "declared": asdict(direction.declared),
        "changed": {name: value for name, value in asdict(direction.change).items() if value is not None},
        "now": asdict(direction.now),
        "actual": dict(direction.actual),
    }


def _sentence(direction: LinkDirection) -> str:
    changed = [f"{_TITLES[name]} {_text(name, value)}" for name, value in _named(direction)]
    text = f"{direction.port} -> {direction.peer}: {', '.join(changed) or 'as declared'}"
    if direction.delay_by is DelayBy.ENDPOINT and (direction.change.delay_ns or direction.change.jitter_ns):
        text += "\n  delay by the endpoints: transports of ours that start from now on hold it; TCP gets none"
    return text


def _named(direction: LinkDirection) -> Sequence[tuple[str, Any]]:
    return [(name, value) for name, value in asdict(direction.change).items() if value is not None]
