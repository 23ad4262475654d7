"""A view as it is registered: its routes, and what it watches while a page looks at it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from testbed.api.console.answers import RefusedRequest, body_of, error_answer, json_answer
from testbed.base.errors import TestbedError

if TYPE_CHECKING:
    from testbed.api.console.console import Console
    from testbed.api.console.sources.source import Source

READERS = 8
"""Requests that look into labs and records at the same time; more wait."""
Publish = Callable[[object], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewCall:
    """A request to a route of a view. `source` is None where the view is of the whole machine."""

    console: Console
    source: Source | None
    query: Mapping[str, str]
    path: Mapping[str, str]
    body: Mapping[str, Any]
    request: Request

    @property
    def base(self) -> Source:
        """The source; a view of a base has one."""
        assert self.source is not None
        return self.source


Handler = Callable[[ViewCall], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRoute:
    """A path below a view's address. `changes` says that it is refused in a console that only reads."""

    method: Literal["GET", "POST", "PUT"]
    path: str
    handler: Handler
    changes: bool


def get(path: str, handler: Handler) -> ViewRoute:
    """Make a route that is read."""
    return ViewRoute(method="GET", path=path, handler=handler, changes=False)


def post(path: str, handler: Handler, *, changes: bool = True) -> ViewRoute:
    """Make a route that something is sent to; without `changes` it only looks at that, and is there for all."""
    return ViewRoute(method="POST", path=path, handler=handler, changes=changes)


def put(path: str, handler: Handler) -> ViewRoute:
    """Make a route whose content is replaced."""
    return ViewRoute(method="PUT", path=path, handler=handler, changes=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A part of the page with data of its own.

    `scope` is what it is about: the machine, or a base; `live` and `recorded` say which bases have it. `watch` runs in
    a thread of its own while a page looks at the base: it publishes what pages get as an event `view`, and returns when
    the event that it is given is set. `snapshot` returns what a page gets of it in the beginning.
    """

    name: str
    title: str
    order: int
    scope: Literal["machine", "base"] = "base"
    live: bool = True
    recorded: bool = False
    routes: tuple[ViewRoute, ...] = ()
    watch: Callable[[Source, Publish, threading.Event], None] | None = None
    snapshot: Callable[[Source], object] | None = None
    page: bool = True
    """It has a module of the page: `views/NAME.js`."""
    style: bool = field(default=False)
    """It has a style sheet beside that."""

    def to_json(self) -> dict[str, Any]:
        """Return what the page is told of it."""
        return {
            "name": self.name,
            "title": self.title,
            "order": self.order,
            "scope": self.scope,
            "live": self.live,
            "recorded": self.recorded,
            "module": f"views/{self.name}.js" if self.page else None,
            "style": f"views/{self.name}.css" if self.style else None,
        }


class Readers:
    """The threads in which handlers run that look into labs: a few, so that pages cannot occupy the machine."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="console")

    async def run(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns, or raise what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Begin nothing more; what runs goes on to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


async def answer_call(console: Console, route: ViewRoute, request: Request, source: Source | None) -> Response:
    """Answer a request to a view's route. A handler that is no coroutine runs among the readers."""
    try:
        if route.changes:
            console.require_write()
        body = {} if route.method == "GET" else await body_of(request)
        call = ViewCall(
            console=console,
            source=source,
            query=dict(request.query_params),
            path={key: str(value) for key, value in request.path_params.items()},
            body=body,
            request=request,
        )
        if inspect.iscoroutinefunction(route.handler):
            said: Any = await route.handler(call)
        else:
            said = await console.readers.run(lambda: route.handler(call))
        if isinstance(said, Awaitable):
            said = await said
        return json_answer(said)
    except TestbedError as error:
        return error_answer(error)
    except OSError as error:
        return error_answer(RefusedRequest(500, f"{error.strerror or error}"))
