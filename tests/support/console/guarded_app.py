"""An application that does harm when it is asked to, behind the console's guard or without it, as a process.

`guarded_app.py guard|none` prints its port, and the cookie of somebody who has logged in. `/api/noted` has what was
done.
"""

import asyncio
import socket
import sys

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from testbed.api.console import start
from testbed.api.console.guard import ConsoleGuard, Names
from testbed.api.console.sessions import Sessions

COOKIE = "testbed-console"


async def serve(guarded: bool) -> None:
    """Serve until the process is ended."""
    noted: list[str] = []
    sessions = Sessions(COOKIE)

    def knows(connection: Request | WebSocket) -> bool:
        return sessions.knows(connection.headers.get("cookie", ""))

    async def page(request: Request) -> Response:
        return HTMLResponse(f"<h1>console</h1>{request.query_params.get('name', '')}")

    async def act(request: Request) -> Response:
        noted.append(f"{request.url.path} by {'its user' if knows(request) else 'nobody'}")
        return JSONResponse({})

    async def shell(opened: WebSocket) -> None:
        await opened.accept()
        noted.append(f"shell by {'its user' if knows(opened) else 'nobody'}: {await opened.receive_text()}")

    async def tell(_: Request) -> Response:
        return JSONResponse(noted)

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    value = sessions.log_in(sessions.new_token())
    app: ASGIApp = Starlette(
        routes=[
            Route("/", page),
            Route("/api/act", act, methods=["POST"]),
            Route("/api/stream", act),
            Route("/api/noted", tell),
            WebSocketRoute("/api/shell", shell),
        ]
    )
    if guarded:
        app = ConsoleGuard(app, Names.of("127.0.0.1", port), sessions)
    print(port, value, flush=True)
    await start._Server(start._configuration(app, None)).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1] == "guard"))
