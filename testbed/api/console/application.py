"""The addresses of the console, and what answers at each.

What is below a base (`/api/labs/NAME`, `/api/runs/DIRECTORY/POINT/RUN`) is declared once, and is there for both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from testbed.api.console.action import answer_action, find_action, read_request
from testbed.api.console.answers import RefusedRequest, body_of, error_answer, json_answer, not_found
from testbed.api.console.console import MOST_STREAMS, Console
from testbed.api.console.live.lab import WatchedLab
from testbed.api.console.page_files import PageFiles
from testbed.api.console.queries import BASE_ROUTES, recorded_snapshot
from testbed.api.console.sessions import Sessions
from testbed.api.console.shells import serve_shell
from testbed.api.console.sources.source import Source
from testbed.api.console.stream.events import FeedAnswer
from testbed.api.console.stream.feed import Feed
from testbed.api.console.view import ViewRoute, answer_call, get, post, put
from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.records.labdir import INVENTORY_FILE

_LIVE, _RECORDED = "/api/labs/{name}", "/api/runs/{directory}/{point:int}/{run:int}"
_LONGEST_FORM = 4_096
_ONWARD = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>testbed console</title>'
Endpoint = Callable[[Request], Awaitable[Response]]


def application(console: Console, sessions: Sessions | None, *, secure: bool, told: Callable[[], None]) -> Starlette:
    """Make the application of a console, without its guard. `told` is called when a browser has logged in."""
    files = PageFiles()
    pages = _Pages(files, console.settings.opens, sessions, secure, told)
    return Starlette(
        routes=[
            Route("/", pages.index),
            Route("/login", pages.log_in, methods=["POST"]),
            *_machine_routes(console),
            *_base_routes(console),
            Mount("/static", files),
        ],
    )


class _Pages:
    """The page, and how a browser logs in."""

    def __init__(
        self, files: PageFiles, opens: str | None, sessions: Sessions | None, secure: bool, told: Callable[[], None]
    ) -> None:
        self._files = files
        self._opens = opens
        self._sessions = sessions
        self._secure = secure
        self._told = told

    async def index(self, request: Request) -> Response:
        """Answer with the page; with the form to log in where somebody has not; take a token of the address."""
        if self._sessions is None:
            return self._files.index(self._opens)
        token = request.query_params.get("token")
        if token is not None:
            return self._logged_in(token, by_page=request.headers.get("sec-fetch-site", "none") == "cross-site")
        if not self._sessions.knows(request.headers.get("cookie", "")):
            return self._files.login()
        return self._files.index(self._opens)

    async def log_in(self, request: Request) -> Response:
        """Take a token of the form."""
        content = b""
        async for chunk in request.stream():
            content += chunk
            if len(content) > _LONGEST_FORM:
                return error_answer(RefusedRequest(413, "the form is too large"))
        values = parse_qs(content.decode("ascii", "replace"))
        return self._logged_in(values.get("token", [""])[0].strip())

    def _logged_in(self, token: str, *, by_page: bool = False) -> Response:
        """Exchange a token for a cookie; the address without the token is what stays in the history.

        A browser that was led here by another page, such as a file, sends no strict cookie along with a redirect
        (RFC 6265bis, 5.2): it is led on by a page of ours.
        """
        value = None if self._sessions is None else self._sessions.log_in(token)
        if value is None or self._sessions is None:
            return self._files.login()
        self._told()
        cookie = self._sessions.cookie_header(value, secure=self._secure)
        if by_page:
            return HTMLResponse(_ONWARD, headers={"Set-Cookie": cookie})
        return RedirectResponse("/", 303, headers={"Set-Cookie": cookie})


# --- the machine ------------------------------------------------------------------------------------------


def _machine_routes(console: Console) -> list[BaseRoute]:
    own = (
        get("console", lambda call: console.described()),
        get("cost", lambda call: console.cost()),
        get("labs", lambda call: console.labs()),
        post("machines/open", _open_there, changes=False),
        get("tasks", lambda call: console.tasks.to_json()),
        get("tasks/{task}", lambda call: console.tasks.find(call.path["task"]).to_json(None)),
        post("tasks/{task}/cancel", _cancel),
        get("files", lambda call: _listed(console, call.query.get("kind", "topology"))),
        get("files/{path:path}", lambda call: console.files.read(call.path["path"])),
        put("files/{path:path}", _write_file),
    )
    routes: list[BaseRoute] = [_route(console, "/api", item, None) for item in own]
    routes.append(Route("/api/stream", _machine_stream(console)))
    routes.append(Route("/api/actions/{action}", _action(console, None), methods=["POST"]))
    for view in console.views.values():
        if view.scope == "machine":
            routes += [_route(console, f"/api/views/{view.name}", item, None) for item in view.routes]
    return routes


async def _cancel(call: Any) -> dict[str, Any]:
    call.console.tasks.cancel(call.path["task"])
    return {}


def _open_there(call: Any) -> dict[str, str]:
    if call.console.others is None:
        raise not_found("this console was told of no other machines", hint="start it with --also ssh://HOST")
    from testbed.api.console.machine.others import answer_open

    return answer_open(call.console.others, call.body)


def _write_file(call: Any) -> dict[str, str]:
    text, etag = call.body.get("text"), call.body.get("etag", "")
    if not isinstance(text, str) or not isinstance(etag, str):
        raise RefusedRequest(400, "text and etag are expected, both strings")
    return {"etag": call.console.files.write(call.path["path"], text, etag)}


def _listed(console: Console, kind: str) -> list[Any]:
    if kind not in ("topology", "scenario"):
        raise RefusedRequest(400, f"kind={kind}: topology or scenario")
    wanted = kind == "scenario"
    return [
        item
        for item in console.files.listed()
        if item.name != INVENTORY_FILE and _is_scenario(console, item.path) is wanted
    ]


def _is_scenario(console: Console, path: str) -> bool:
    """Tell whether a YAML file has the key that all scenarios have; read as text, since it may be anything."""
    try:
        text = console.files.read(path).text
    except TestbedError:
        return False
    return any(line.startswith("workload:") for line in text.splitlines())


def _machine_stream(console: Console) -> Endpoint:
    async def answer(request: Request) -> Response:
        return _stream(console, request, console.feed, lambda: None)

    return answer


class _Streamed(Response):
    """A response that a stream sends by itself."""

    def __init__(self, stream: FeedAnswer) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._stream(scope, receive, send)


def _stream(console: Console, request: Request, feed: Feed, ended: Callable[[], None]) -> Response:
    if console.streams >= MOST_STREAMS:
        return error_answer(RefusedRequest(429, f"{MOST_STREAMS} pages look already", hint="close some of them"))
    console.streams += 1

    def end() -> None:
        console.streams -= 1
        ended()

    last = request.headers.get("last-event-id") or request.query_params.get("last", "")
    return _Streamed(FeedAnswer(feed, last, end))


# --- below a base -----------------------------------------------------------------------------------------


def _base_routes(console: Console) -> list[BaseRoute]:
    routes: list[BaseRoute] = []
    for base, finder in ((_LIVE, _find_live), (_RECORDED, _find_recorded)):
        find = finder(console)
        routes += [_route(console, base, item, find) for item in BASE_ROUTES]
        for view in console.views.values():
            if view.scope == "base" and (view.live if base == _LIVE else view.recorded):
                routes += [_route(console, f"{base}/views/{view.name}", item, find) for item in view.routes]
        routes.append(Route(f"{base}/stream", _base_stream(console, find)))
        routes.append(Route(f"{base}/actions/{{action}}", _action(console, find), methods=["POST"]))

    async def shell(socket: WebSocket) -> None:
        await serve_shell(console, socket)

    routes.append(WebSocketRoute(f"{_LIVE}/shell/{{node}}", shell))
    return routes


Finder = Callable[[Mapping[str, Any]], Awaitable[Source]]


def _find_live(console: Console) -> Finder:
    async def find(path: Mapping[str, Any]) -> Source:
        return await console.live_lab(path["name"])

    return find


def _find_recorded(console: Console) -> Finder:
    async def find(path: Mapping[str, Any]) -> Source:
        found: Source = await console.readers.run(lambda: console.played(path["directory"], path["point"], path["run"]))
        return found

    return find


def _route(console: Console, base: str, item: ViewRoute, find: Finder | None) -> BaseRoute:
    async def answer(request: Request) -> Response:
        try:
            source = None if find is None else await find(request.path_params)
        except (TestbedError, OSError) as error:
            return error_answer(error if isinstance(error, TestbedError) else RefusedRequest(500, str(error)))
        return await answer_call(console, item, request, source)

    return Route(f"{base}/{item.path}".rstrip("/"), answer, methods=[item.method])


def _base_stream(console: Console, find: Finder) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            source = await find(request.path_params)
        except (TestbedError, OSError) as error:
            return error_answer(error if isinstance(error, TestbedError) else RefusedRequest(500, str(error)))
        if isinstance(source, WatchedLab):
            stream = _stream(console, request, source.feed, lambda: console.unwatch_views(source))
            if isinstance(stream, _Streamed):  # else nobody would end what watches
                console.watch_views(source)
            return stream
        feed = console.feed_of_record(source, lambda: recorded_snapshot(console, source))
        stream = _stream(console, request, feed, lambda: console.leave_record(source))
        if not isinstance(stream, _Streamed):
            console.leave_record(source)
        return stream

    return answer


def _action(console: Console, find: Finder | None) -> Endpoint:
    async def answer(request: Request) -> Response:
        try:
            source = None if find is None else await find(request.path_params)
            if source is not None and not source.live:
                raise RefusedRequest(403, "this is a record: nothing can be done to it", code="read-only")
            body = await body_of(request)
            action = find_action(console.actions, request.path_params["action"])
            asked = read_request(action, console, source, body)
            return json_answer(await console.readers.run(lambda: answer_action(action, asked, body)))
        except TestbedError as error:
            return error_answer(error)
        except OSError as error:
            return error_answer(RefusedRequest(500, error.strerror or str(error)))

    return answer
