"""The counters of `stats --scale-up`: the links of scale-up domains, as the domains' switches count them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from testbed.base.errors import TestbedError
from testbed.base.rows import short
from testbed.cli.counters import view
from testbed.cli.counters.sources import StatsFrame, StatsSource
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.features.scale_up.counters.balance import PlaneBalance, balance_domains
from testbed.lab.features.scale_up.counters.names import LINK_COUNTERS, TRAFFIC
from testbed.lab.features.scale_up.counters.reading import ChannelReading, DomainReading, LinkReading, read_domains
from testbed.lab.features.scale_up.links import NoSuchScaleUpLink, ScaleUpLink, ScaleUpPlace, find_links
from testbed.lab.observe.port_table import NothingSelected
from testbed.protocols.scale_up.domain.link import LinkErrors

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_CREDITS = ("s_cc", "s_cf", "r_cc", "r_cf")
_PLACE = ("time_ns", "domain", "plane", "host", "gpu", "vc")
_COLUMNS = (
    *_PLACE,
    *(item.name for item in TRAFFIC),
    *("credits_used", "credits_held", "credits_held_max"),
    *_CREDITS,
    *(item.name for item in LINK_COUNTERS if item not in TRAFFIC),
)
_ERRORS = (
    ("bad_frames", "bad"),
    ("llr_tx_replay", "sent again"),
    ("wire_lost_rx", "lost from GPU"),
    ("wire_lost_tx", "lost to GPU"),
    ("undelivered", "undelivered"),
    ("leaked_credits", "leaked credits"),
    ("xoff_tx", "pauses asked"),
)


class PlaneSource(StatsSource):
    """Reads the links that the patterns name: a host, or as in `testbed link`; without `every` those with traffic."""

    def __init__(self, lab: RunningLab, patterns: Sequence[str], *, every: bool) -> None:
        """Raises `TestbedError` for a lab without packets in its domains, and for a pattern that names nothing."""
        self._lab = lab
        self._every = every
        chosen = [link for pattern in patterns or _everything(lab) for link in _named(lab, pattern)]
        self._chosen = frozenset(chosen)

    def read(self, before: PlaneFrame | None) -> PlaneFrame:
        now = read_domains(self._lab)
        return PlaneFrame(self._lab, now, self._chosen, before, every=self._every)

    def reset_maxima(self) -> None:
        raise TestbedError("the switches of scale-up domains keep their maxima", hint="leave --reset-max out")


def _everything(lab: RunningLab) -> list[str]:
    domains = lab.whole.plan.scale_up_domains
    if not domains:
        find_links(lab.whole.model, "planes")  # says why there are none
    return [f"{domain.name}:planes" for domain in domains]


def _named(lab: RunningLab, pattern: str) -> Iterator[ScaleUpLink]:
    try:
        yield from find_links(lab.whole.model, pattern if ScaleUpPlace.parse(pattern) else f"{pattern}:planes")
    except NoSuchScaleUpLink as error:
        raise NothingSelected(error.message, hint=error.hint) from error


class PlaneFrame(StatsFrame):
    """Counters since the start of each switch, or since the frame `before`."""

    def __init__(
        self,
        lab: RunningLab,
        now: Sequence[DomainReading],
        chosen: frozenset[ScaleUpLink],
        before: PlaneFrame | None,
        *,
        every: bool,
    ) -> None:
        self.columns = _COLUMNS
        self.now = now
        self.time_ns = time.monotonic_ns()
        self._lab = lab
        self._seconds = (self.time_ns - before.time_ns) / 1e9 if before else None
        self._domains = [item.since(old) for item, old in zip(now, before.now, strict=True)] if before else now
        self._links = [
            link
            for domain in self._domains
            for link in domain.links
            if link.link in chosen and (every or link.is_active or link.errors != LinkErrors())
        ]
        self._balance: PlaneBalance = balance_domains(now, lab.whole.plan)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each channel; what is counted for a link as a whole stands in that of its first one."""
        return [
            {
                "time_ns": self.time_ns,
                **_place(link),
                "vc": channel.vc,
                **(link.counters if channel.vc == 0 else {}),
                **channel.counters,
                **_credits(channel),
            }
            for link in self._links
            for channel in link.channels
        ]

    def document(self) -> dict[str, Any]:
        return {
            "lab": self._lab.name,
            "k": self._lab.record.k,
            "time_ns": self.time_ns,
            "seconds": self._seconds,
            "domains": [
                {
                    "domain": domain.domain,
                    "switch_runs": not domain.problem,
                    "problem": domain.problem,
                    "frames": domain.frames,
                    "socket_drops": domain.socket_drops,
                    "lateness_p999_ns": domain.lateness_p999_ns,
                }
                for domain in self._domains
            ],
            "links": [
                {
                    **_place(link),
                    "counters": dict(link.counters),
                    "sai": link.sai,
                    "dcgm": link.dcgm,
                    "errors": asdict(link.errors),
                    "vcs": [{"vc": channel.vc, **channel.counters, **_credits(channel)} for channel in link.channels],
                }
                for link in self._links
            ],
            "reconciliation": {
                "verdict": "broken" if self._balance.imbalances else "reconciled",
                "checked": self._balance.checked,
                "imbalances": [asdict(item) for item in self._balance.imbalances],
            },
        }

    def table(self, room: int | None) -> Table:
        from rich.text import Text

        span = "since its switches started" if self._seconds is None else f"in {self._seconds:.1f} s"
        table = view.new_table(f"{self._lab.name}, scale-up: {span}")
        table.add_column("link", no_wrap=True)
        table.add_column("vc", justify="right")
        for heading in ("from GPU", "bytes", "to GPU", "bytes", *(("rate",) if self._seconds else ())):
            table.add_column(heading, justify="right")
        table.add_column("credits used/held/max", justify="right")
        table.add_column("waited", justify="right")
        table.add_column("errors")
        lines = [(link, channel) for link in self._links for channel in link.channels]
        for link, channel in lines if room is None else lines[:room]:
            counted = channel.counters
            rate = (short(counted["sent_bytes"] * 8 / self._seconds, "bit/s"),) if self._seconds else ()
            dropped = [f"{short(counted['dropped_frames'])} dropped"] if counted["dropped_frames"] else []
            errors = dropped + (_errors(link) if channel.vc == 0 else [])
            table.add_row(
                link.link.name if channel.vc == 0 else "",
                str(channel.vc),
                short(counted["received_frames"]),
                short(counted["received_bytes"], "B"),
                short(counted["sent_frames"]),
                short(counted["sent_bytes"], "B"),
                *rate,
                f"{channel.used}/{channel.held}/{channel.deepest}",
                view.short_time(counted["xmit_wait_ns"] / 1e3),
                Text(", ".join(errors), style="yellow"),
            )
        if room is not None and room < len(lines):
            table.caption = f"and {len(lines) - room} more: choose with HOST, HOST.gpu1:planes or DOMAIN:plane1"
        return table

    def footer(self) -> Text:
        from rich.text import Text

        text = Text()
        for domain in self._domains:
            if domain.problem:
                text.append(f"{domain.domain}: {domain.problem}; `testbed link up {domain.domain}:planes` starts it\n")
            elif domain.socket_drops:
                text.append(f"{domain.domain}: the kernel lost {domain.socket_drops} frames of its switch\n")
        total = sum(domain.frames for domain in self._domains)
        switches = f"{len(self._domains)} switch{'' if len(self._domains) == 1 else 'es'}"
        text.append(f"total: {short(total)} frames through {switches}; ")
        text.append(str(self._balance), style="bold red" if self._balance.imbalances else "green")
        return text


def _place(link: LinkReading) -> dict[str, Any]:
    place = link.link
    return {
        "link": place.name,
        "domain": place.domain,
        "plane": place.plane,
        "host": place.host,
        "gpu": place.local_gpu,
    }


def _credits(channel: ChannelReading) -> dict[str, int]:
    named = {"credits_used": channel.used, "credits_held": channel.held, "credits_held_max": channel.deepest}
    return named | {name: getattr(channel, name) for name in _CREDITS}


def _errors(link: LinkReading) -> list[str]:
    """Name the faults of a link, those that it has on purpose among them."""
    found = [f"{short(link.counters[name])} {words}" for name, words in _ERRORS if link.counters[name]]
    return [*found, *(["down"] if link.errors.down else []), *(["silent"] if link.errors.silent else [])]
