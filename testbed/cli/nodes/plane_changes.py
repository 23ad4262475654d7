"""Links of scale-up domains as the verbs of `link` show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from testbed.base.units import Rate
from testbed.cli.nodes.link_changes import ValueRow
from testbed.lab.features.scale_up.planes import PlaneLink
from testbed.protocols.scale_up.domain.link import LinkErrors

_AS_DECLARED = LinkErrors()


def plane_rows(item: PlaneLink, *, everything: bool) -> Iterator[ValueRow]:
    """A row for each thing that can be changed; without `everything` only for those that were."""
    row = partial(ValueRow, port=item.link.name, to=f"{item.link.domain} plane {item.link.plane}")
    if item.errors is None:
        yield row(what="switch", declared="runs", actual="does not run")
        return
    for title, declared, now in _values(item):
        if everything or now != declared:
            yield row(what=title, declared=declared, set=now if now != declared else "", actual=now)


def plane_document(item: PlaneLink) -> dict[str, Any]:
    """Put a link into JSON data. Values of the lab, in both directions."""
    errors = None if item.errors is None else asdict(item.errors)
    return {
        "port": item.link.name,
        "domain": item.link.domain,
        "plane": item.link.plane,
        "host": item.link.host,
        "gpu": item.link.local_gpu,
        "interface": item.link.interface,
        "declared_rate_bps": item.rate_bps,
        "switch_runs": errors is not None,
        "now": None if errors is None else errors | {"rate_bps": errors["rate_bps"] or item.rate_bps},
    }


def plane_sentence(place: str, links: Sequence[PlaneLink]) -> str:
    """Tell a person what links do now that they are changed, in both directions."""
    kinds = Counter(plane_words(item) or "as declared" for item in links)
    what = "; ".join(words if len(kinds) == 1 else f"{count} of them {words}" for words, count in kinds.items())
    count = "both directions" if len(links) == 1 else f"{len(links)} links, both directions"
    return f"{place} ({count}): {what}"


def plane_words(item: PlaneLink) -> str:
    """How a link differs from what is declared; "": it does not."""
    if item.errors is None:
        return "no switch runs"
    if item.errors.down:
        return "down"
    changed = [(title, now) for title, declared, now in _values(item) if now != declared]
    return ", ".join(title if now == "yes" else f"{title} {now}" for title, now in changed)


def _values(item: PlaneLink) -> list[tuple[str, str, str]]:
    """What can be changed: its title, as declared, and as it is."""
    errors = item.errors or _AS_DECLARED
    declared = str(Rate(item.rate_bps))
    return [
        ("rate in the lab", declared, str(Rate(errors.rate_bps)) if errors.rate_bps else declared),
        ("loss", "0%", f"{100 * errors.loss:.6g}%"),
        ("frames lost in a row", "1", f"{errors.burst or 1:.6g}"),
        ("one lost in", "none", str(errors.every) if errors.every else "none"),
        ("corruption", "0%", f"{100 * errors.corrupt:.6g}%"),
        ("silent", "no", "yes" if errors.silent else "no"),
        ("up", "yes", "no" if errors.down else "yes"),
    ]
