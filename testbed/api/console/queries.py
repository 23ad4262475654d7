"""Questions of a page to what it looks at, by addresses below a base: the same for a lab and for a record."""

from __future__ import annotations

import csv
import functools
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from testbed.api.console.answers import RefusedRequest, encode, json_answer, not_found, number, whole_number
from testbed.api.console.counters.history import PortSeries, thinned
from testbed.api.console.counters.quantities import QUANTITIES
from testbed.api.console.sources.recorded import DIGITS
from testbed.api.console.sources.shape import LabShape
from testbed.api.console.sources.source import Source
from testbed.api.console.tables.registry import TABLES
from testbed.api.console.tables.table import MOST_ROWS, TableQuery, table_page
from testbed.api.console.view import ViewCall, ViewRoute, get, put
from testbed.base.names import known_names_hint

if TYPE_CHECKING:
    from testbed.api.console.console import Console

DEFAULT_POINTS = 600
MOST_POINTS = 4_000
MOST_SERIES = 256
MOST_MOMENTS = 60
MOST_DRAWN = 4
"""Labs whose drawing is kept."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
"""Characters that are in no name of a file."""
_REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; "
    "frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
}
"""A report is shown in a frame of the page; it is of a record that may be a stranger's, and runs nothing."""


def _described(call: ViewCall) -> Response:
    source = call.base
    tag = f'"{source.shape.revision}"'
    if call.request.headers.get("if-none-match") == tag and source.live:
        return Response(status_code=304, headers={"ETag": tag})
    shown = [table.to_json() for table in TABLES.values() if table.of(source)]
    views = [
        view.name
        for view in call.console.views.values()
        if view.scope == "base" and (view.live if source.live else view.recorded)
    ]
    document = source.described() | {
        "metrics": QUANTITIES,
        "tables": shown,
        "views": views,
        "write": call.console.write and source.live,
    }
    return json_answer(document, headers={"ETag": tag})


def _map(call: ViewCall) -> Response:
    return Response(_drawn(call.base.shape), media_type="application/json")


@functools.lru_cache(maxsize=MOST_DRAWN)
def _drawn(shape: LabShape) -> bytes:
    """Draw a lab once for all pages that look at it: of a large one it takes a while."""
    from testbed.lab.graph.console import console_map

    return encode(console_map(shape.model, k=shape.k))


def _positions_file(call: ViewCall) -> Path:
    """Return the topology file of what is looked at. Raises `RefusedRequest` where no start directory has it."""
    source = call.base.shape.model.source
    shown = call.console.files.shown(Path(source)) if source else None
    if shown is None:
        raise not_found("the topology file is not below the directories of this console")
    return call.console.files.path(shown)


def _positions(call: ViewCall) -> object:
    from testbed.lab.graph.positions import read_positions

    try:
        return read_positions(_positions_file(call))
    except RefusedRequest:
        return {}


def _put_positions(call: ViewCall) -> object:
    from testbed.lab.graph.positions import write_positions

    nodes = call.base.shape.nodes
    found: dict[str, tuple[float, float]] = {}
    for name, place in call.body.items():
        if name not in nodes or not isinstance(place, list) or len(place) != 2:
            raise RefusedRequest(400, f"no position of a node: {name[:80]!r}")
        x, y = (number(str(value), name) for value in place)
        found[name] = x, y
    write_positions(_positions_file(call), found)
    return {}


def _moment(call: ViewCall) -> object:
    texts = call.query.get("t", "").split(",")
    if len(texts) > MOST_MOMENTS:
        raise RefusedRequest(400, f"{len(texts)} moments at once are too many (at most {MOST_MOMENTS})")
    found = []
    for text in texts:
        moment = call.base.moment(number(text, "t"))
        if moment is None:
            raise not_found("nothing is kept of that moment")
        found.append(moment.to_json())
    return found[0] if len(found) == 1 else {"moments": found}


def _metrics(call: ViewCall) -> list[str]:
    names = list(dict.fromkeys(name for name in call.query.get("metrics", "use").split(",") if name))
    for name in names:
        if name not in QUANTITIES:
            raise RefusedRequest(400, f"there is no metric {name!r}", hint=known_names_hint(name, QUANTITIES))
    return names


def _between(call: ViewCall) -> tuple[float, float]:
    span = call.base.span or (0.0, 0.0)
    begin, end = (number(call.query.get(name, str(own)), name) for name, own in zip(("from", "to"), span, strict=True))
    return begin, end


def _history(call: ViewCall) -> object:
    names, (begin, end) = _metrics(call), _between(call)
    ports = [_port(call.base, text) for text in call.query.get("ports", "").split(",") if text]
    if len(ports) * max(1, len(names)) > MOST_SERIES:
        raise RefusedRequest(400, f"at most {MOST_SERIES} series at once")
    series = call.base.series(names, ports, begin, end)
    return _series_json(call, series, {name: series.values[name].shape[1] for name in names})


def _port(source: Source, text: str) -> int:
    """Return the number of a port, which is named by it, or as NODE:IF."""
    places = source.shape.places
    if text in places:
        return places[text]
    if not text.isdecimal():
        raise not_found(f"there is no port {text!r}", known_names_hint(text, list(places)))
    return whole_number(text, "ports", most=source.shape.ports - 1)


def _total(call: ViewCall) -> object:
    names, (begin, end) = _metrics(call), _between(call)
    networks = [name for name in call.query.get("network", "").split(",") if name]
    for name in networks:
        if name not in call.base.shape.networks:
            raise not_found(f"there is no network {name!r}", known_names_hint(name, call.base.shape.networks))
    chosen = call.base.shape.of_networks(networks)
    found = [call.base.total(name, chosen, begin, end) for name in names]
    times = found[0].times if found else call.base.series((), (), begin, end).times
    values = {name: one.values[name][: len(times)] for name, one in zip(names, found, strict=True)}
    return _series_json(call, PortSeries(times=times, values=values), dict.fromkeys(names, 1))


def _series_json(call: ViewCall, series: PortSeries, widths: dict[str, int]) -> dict[str, Any]:
    points = whole_number(call.query.get("points", str(DEFAULT_POINTS)), "points", least=2, most=MOST_POINTS)
    series = thinned(series, points)
    times = series.times.round(3 if call.base.live else DIGITS).tolist()
    begin, end = (times[0], times[-1]) if times else (0.0, 0.0)
    columns = {
        name: [[None if value < 0 else value for value in column] for column in series.values[name].T.tolist()]
        for name, width in widths.items()
        if width
    }
    events = call.base.events(begin, end) if times else []
    return {"t": times, "series": columns, "span": call.base.span, "events": events}


def _events(call: ViewCall) -> object:
    span = call.base.span or (0.0, 0.0)
    begin = number(call.query.get("from", str(span[0])), "from")
    end = number(call.query.get("to", "1e12"), "to")
    count = whole_number(call.query.get("count", "1000"), "count", least=1, most=10_000)
    return call.base.events(begin, end)[-count:]


def _table(call: ViewCall) -> object:
    name = call.path["table"]
    if name not in TABLES or not TABLES[name].of(call.base):
        raise not_found(f"there is no table {name!r}", known_names_hint(name, list(TABLES)))
    moment = None
    if "t" in call.query:
        moment = call.base.moment(number(call.query["t"], "t"))
        if moment is None:
            raise not_found("nothing is kept of that moment")
    as_csv = call.query.get("format") == "csv"
    query = TableQuery(
        words=call.query.get("q", ""),
        network=call.query.get("network", ""),
        class_name=call.query.get("class", ""),
        sort=call.query.get("sort", ""),
        descending=call.query.get("order", "asc") == "desc",
        offset=whole_number(call.query.get("offset", "0"), "offset"),
        limit=MOST_ROWS if as_csv else whole_number(call.query.get("limit", "200"), "limit", least=1, most=5_000),
        moment=moment,
    )
    page = table_page(TABLES[name], call.base, query)
    if not as_csv:
        return page
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column["name"] for column in page["columns"]])
    writer.writerows([_cell(value) for value in row] for row in page["rows"])
    lab = _NO_NAME.sub("-", call.base.name)  # of a record, which may come from a stranger
    disposition = f'attachment; filename="{lab}-{name}.csv"'
    return Response(text.getvalue(), media_type="text/csv", headers={"Content-Disposition": disposition})


def _cell(value: Any) -> Any:
    """Return a value of a cell of CSV. One that a spreadsheet would take for a formula is kept as text."""
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else value
    return f"'{text}" if isinstance(text, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _node(call: ViewCall) -> object:
    return call.base.node(call.path["node"])


def _report(call: ViewCall) -> Response:
    """Return the report of the record whose run is played back. Raises `RefusedRequest` for a lab that is up."""
    from testbed.api.console.sources.recorded import RecordedLab
    from testbed.record.report import render_report

    if not isinstance(call.base, RecordedLab):
        raise not_found("a lab that is up has no report", "each run on it leaves one: see its results")
    content = render_report(call.base.record).encode(errors="replace")
    return Response(content, media_type="text/html", headers=_REPORT_HEADERS)


BASE_ROUTES: tuple[ViewRoute, ...] = (
    get("", _described),
    get("map", _map),
    get("positions", _positions),
    put("positions", _put_positions),
    get("moment", _moment),
    get("history", _history),
    get("history/total", _total),
    get("events", _events),
    get("table/{table}", _table),
    get("node/{node}", _node),
    get("report", _report),
)


def recorded_snapshot(console: Console, source: Source) -> bytes:
    """Return the one snapshot that a page gets of a record: its first moment, and what is known of the machine."""
    own = source.now().to_json() | {"revision": source.shape.revision}
    return encode(own)[:-1] + b"," + console.common()[1:]
