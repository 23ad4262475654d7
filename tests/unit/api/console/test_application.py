"""What the console answers, and to whom: with a lab that is there for pages alone."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from asgi import HOST, Answer, ask, open_socket
from fake_source import FakeSource
from starlette.applications import Starlette
from starlette.routing import Route

from testbed.api.console import application as application_module
from testbed.api.console.action import PageAction
from testbed.api.console.application import application
from testbed.api.console.console import Console, ConsoleSettings
from testbed.api.console.guard import ConsoleGuard, Names
from testbed.api.console.live.lab import WatchedLab
from testbed.api.console.page_files import STATIC
from testbed.api.console.sessions import Sessions
from testbed.api.console.sources.source import Source
from testbed.api.console.view import View, ViewCall, get, post, put
from testbed.base.errors import Position, Problem, SpecError
from testbed.lab.core.deploy.records.state import StateDirectory

HOSTILE = '"><img src=x onerror=alert(1)>'


def _refuse(call: ViewCall) -> object:
    at = Position(line=3, column=5)
    raise SpecError([Problem(code="unknown-key", file="a.yml", message=HOSTILE, path="x", position=at, hint="y")])


async def _hostile(call: ViewCall) -> object:
    return {"name": HOSTILE, "asked": dict(call.query), "base": call.base.name}


NOTED: list[str] = []
VALUES = {"name": "demo", "directory": "r", "point": 0, "run": 1, "task": "x", "action": "act", "path": "files/a.yml"}


def _note(call: ViewCall) -> object:
    NOTED.append(str(call.body))
    return {}


VIEW = View(
    name="test",
    title="Test",
    order=1,
    recorded=True,
    routes=(
        get("", _hostile),
        get("bad", _refuse),
        post("do", _note),
        put("it", _note),
        post("check", _note, changes=False),
    ),
)
OF_MACHINE = View(name="machine", title="Machine", order=2, scope="machine", routes=(post("do", _note),))
ACTION = PageAction(name="act", title="Act", command=lambda _: [["act"]], perform=lambda _: NOTED.append("acted"))


class Asked:
    """A console, and a page that has logged in."""

    def __init__(self, console: Console, app: ConsoleGuard, cookie: str) -> None:
        self.console = console
        self.app = app
        self.cookie = cookie

    async def __call__(self, method: str, path: str, body: object = None, headers: Mapping[str, str] = {}) -> Answer:
        return await ask(self.app, method, path, headers={"cookie": self.cookie, **headers}, body=body)


def with_console(
    tmp_path: Path, story: Callable[[Asked], Coroutine[Any, Any, None]], *, write: bool = False, only: str | None = None
) -> None:
    """Run a story with a console whose labs `demo` and record `results~r` are a fake one."""

    async def begun() -> None:
        (tmp_path / "files").mkdir(exist_ok=True)
        (tmp_path / "state" / "labs" / "demo").mkdir(parents=True, exist_ok=True)
        console = Console(
            ConsoleSettings(roots=(tmp_path / "files",), write=write, only=only),
            StateDirectory(tmp_path / "state", tmp_path / "run"),
            views=[VIEW, OF_MACHINE],
            actions=[ACTION],
            play=lambda files, directory, point, run: FakeSource(live=False),
        )
        real = console.live_lab

        async def live_lab(name: str) -> WatchedLab:
            if name == "demo" and only in (None, name):
                return cast(WatchedLab, FakeSource())
            return await real(name)

        console.live_lab = live_lab  # type: ignore[method-assign]
        sessions = Sessions("c")
        app = application(console, sessions, secure=False, told=lambda: None)
        cookie = f"c={sessions.log_in(sessions.new_token())}"
        try:
            await story(Asked(console, ConsoleGuard(app, Names.of("127.0.0.1", 9470), sessions), cookie))
        finally:
            console.readers.close()

    NOTED.clear()
    asyncio.run(begun())


def routes_of(app: Starlette) -> list[Route]:
    return [route for route in app.routes if isinstance(route, Route)]


def test_a_token_of_the_link_is_exchanged_for_a_cookie_and_gone_from_the_address(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        sessions = cast(Sessions, asked.app.sessions)
        token = sessions.new_token()
        answer = await ask(asked.app, "GET", f"/?token={token}")
        assert (answer.status, answer.headers["location"]) == (303, "/")
        assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert (await ask(asked.app, "GET", "/api/console", headers={"cookie": cookie})).status == 200
        again = await ask(asked.app, "GET", f"/?token={token}")
        assert (again.status, "set-cookie" in again.headers) == (401, False)
        assert (await ask(asked.app, "GET", "/")).status == 401
        assert (await asked("GET", "/")).status == 200

    with_console(tmp_path, story)


def test_the_form_comes_with_its_origin() -> None:
    """A page without a referrer sends its form with `Origin: null` (Fetch, 3.2), which the guard refuses."""
    page = (STATIC / "login.html").read_text()
    assert page.index('<meta name="referrer" content="same-origin">') < page.index("<form")


def test_who_was_led_here_by_another_page_is_led_on_by_ours(tmp_path: Path) -> None:
    """A browser sends no strict cookie with a redirect that a file, or another site, has begun."""

    async def story(asked: Asked) -> None:
        token = cast(Sessions, asked.app.sessions).new_token()
        answer = await ask(asked.app, "GET", f"/?token={token}", headers={"sec-fetch-site": "cross-site"})
        assert (answer.status, "location" in answer.headers) == (200, False)
        assert b'content="0; url=/"' in answer.body and token.encode() not in answer.body
        assert "SameSite=Strict" in answer.headers["set-cookie"]
        again = await ask(asked.app, "GET", f"/?token={token}", headers={"sec-fetch-site": "cross-site"})
        assert (again.status, "set-cookie" in again.headers) == (401, False)

    with_console(tmp_path, story)


def test_a_token_can_be_pasted_into_the_form(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        token = cast(Sessions, asked.app.sessions).new_token()
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = await ask(asked.app, "POST", "/login", headers=headers, body=f"token={token}".encode())
        assert answer.status == 303
        assert (await ask(asked.app, "POST", "/login", headers=headers, body=b"token=guess")).status == 401
        assert (await ask(asked.app, "POST", "/login", headers=headers, body=b"x" * 10_000)).status == 413

    with_console(tmp_path, story)


def test_a_console_that_only_looks_refuses_all_that_changes_anything(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        app = cast(Starlette, asked.app.app)
        changing = []
        for route in routes_of(app):
            for method in (route.methods or set()) - {"GET", "HEAD"}:
                path = route.path.replace(":int", "").replace(":path", "")
                path = path.format(**VALUES)
                if path == "/login" or path.endswith(("/check", "/machines/open")):
                    continue
                changing.append(path)
                answer = await asked(method, path, body={"text": "x", "confirmed": True})
                assert answer.status == 403, path
                assert answer.json["error"]["code"] == "read-only"
        assert len(changing) >= 9
        assert NOTED == []
        assert (await asked("POST", "/api/labs/demo/views/test/check", {})).status == 200  # it changes nothing

    with_console(tmp_path, story)


def test_a_console_that_writes_does_what_it_is_asked_but_never_to_a_record(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        assert (await asked("POST", "/api/labs/demo/views/test/do", {"a": 1})).status == 200
        assert (await asked("POST", "/api/labs/demo/actions/act", {})).json["done"] is True
        assert NOTED == ["{'a': 1}", "acted"]
        assert (await asked("POST", "/api/runs/r/0/1/actions/act", {})).status == 403
        assert (await asked("PUT", "/api/files/files/n.yml", {"text": "name: n\n", "etag": ""})).status == 200
        assert (tmp_path / "files" / "n.yml").read_text() == "name: n\n"
        assert (await asked("GET", "/api/files/files/n.yml")).json["text"] == "name: n\n"
        assert (await asked("GET", "/api/files/files/../../state")).status == 404

    with_console(tmp_path, story, write=True)


def test_topologies_whose_nodes_are_written_out_are_among_topologies(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        (tmp_path / "files" / "written.yml").write_text("name: w\ntopology:\n  nodes: {a: {kind: host}}\n")
        (tmp_path / "files" / "s.yml").write_text("name: s\ntopology: {file: w.yml}\nworkload: {kind: incast}\n")
        (tmp_path / "files" / "ansible-inventory.yml").write_text("all: {}\n")  # as in the directory of a lab
        for kind, names in (("topology", ["files/written.yml"]), ("scenario", ["files/s.yml"])):
            assert [one["path"] for one in (await asked("GET", f"/api/files?kind={kind}")).json] == names

    with_console(tmp_path, story)


def test_hostile_names_are_data_and_never_markup(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        answer = await asked("GET", "/api/labs/demo/views/test?x=%3Cscript%3E")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json == {"name": HOSTILE, "asked": {"x": "<script>"}, "base": "demo"}
        missing = await asked("GET", "/api/labs/%3Cimg%20onerror=alert(1)%3E")
        assert missing.status == 404
        assert missing.headers["content-type"] == "application/json"

    with_console(tmp_path, story)


def test_problems_of_a_file_come_with_their_places(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        answer = await asked("GET", "/api/labs/demo/views/test/bad")
        (problem,) = answer.json["error"]["problems"]
        assert (answer.status, problem["line"], problem["column"], problem["code"]) == (400, 3, 5, "unknown-key")

    with_console(tmp_path, story)


@pytest.mark.parametrize("base", ["/api/labs/demo", "/api/runs/r/0/1"])
def test_a_lab_and_a_record_answer_alike(tmp_path: Path, base: str) -> None:
    async def story(asked: Asked) -> None:
        shape = (await asked("GET", base)).json
        ports = len(shape["ports"]["name"])
        assert (shape["name"], shape["live"], shape["write"]) == ("demo", "labs" in base, False)
        assert {len(column) for column in shape["ports"].values()} == {ports}
        assert all(peer >= 0 and shape["ports"]["peer"][peer] == at for at, peer in enumerate(shape["ports"]["peer"]))
        moment = (await asked("GET", f"{base}/moment?t=1010.2")).json
        assert (moment["t"], moment["columns"]["use"][0], moment["columns"]["marks"][0]) == (1010.0, 20, -1)
        assert len((await asked("GET", f"{base}/moment?t=1010,1011")).json["moments"]) == 2
        assert (await asked("GET", f"{base}/moment?t=1")).status == 404
        history = (await asked("GET", f"{base}/history?ports=0,1&metrics=use,queue&from=1010&to=1012")).json
        assert history["series"]["use"] == [[20, 21, 22, 23, 24], [0, 0, 0, 0, 0]]
        assert [event["kind"] for event in history["events"]] == ["link-down"]
        total = (await asked("GET", f"{base}/history/total?metrics=queue&from=1010&to=1011&points=2")).json
        assert total["series"] == {"queue": [[640, 640]]}
        table = (await asked("GET", f"{base}/table/ports?sort=use&order=desc&limit=2")).json
        assert (table["total"], table["matched"], len(table["rows"])) == (ports, ports, 2)
        assert not table["of_now"]
        names = [column["name"] for column in table["columns"]]
        assert table["rows"][0][names.index("use")] == 11.9

    with_console(tmp_path, story)


@pytest.mark.parametrize(
    "query",
    [
        *("moment", "moment?t=x", "moment?t=inf", "history?metrics=nonsense", "history?ports=nobody:eth0"),
        *("history?ports=99999", "history?points=0", "history?ports=" + ",".join(["0"] * 300), "table/nonsense"),
        *("table/ports?q=nobody", "table/ports?sort=nonsense", "table/ports?q=nonsense=1", "table/ports?limit=x"),
        *("history/total?network=nonsense", "node/nobody", "report", "moment?t=" + ",".join(["1001"] * 100)),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(tmp_path: Path, query: str) -> None:
    async def story(asked: Asked) -> None:
        answer = await asked("GET", f"/api/labs/demo/{query}")
        assert answer.status in (400, 404)
        assert answer.json["error"]["message"]

    with_console(tmp_path, story)


def test_rows_are_chosen_by_the_words_of_the_command_line(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        async def places(words: str) -> list[str]:
            answer = await asked("GET", f"/api/labs/demo/table/ports?q={words}&limit=500")
            return [key.removeprefix("port:") for key in answer.json["keys"]]

        every = await places("")
        assert await places("p1-s1-h1") == [place for place in every if place.startswith("p1-s1-h1:")]
        assert await places("p1-s1-h1:*") == await places("p1-s1-h1")
        assert await places("p1-s1-h1%20p1-s1-h2") == [p for p in every if p.startswith(("p1-s1-h1:", "p1-s1-h2:"))]
        assert await places("state=changed") == every[:1]
        assert await places("p1-s1-h*%20state=down") == []
        networks = (await asked("GET", "/api/labs/demo")).json["networks"]
        named = ",".join(["none", *(one["name"] for one in networks)])
        assert await places(f"&network={named}") == every
        assert await places("&network=none,nothing") == []

    with_console(tmp_path, story)


def test_a_table_is_csv_that_no_spreadsheet_runs(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        answer = await asked("GET", "/api/labs/demo/table/ports?format=csv&q=p1-s1-h1")
        lines = answer.body.decode().splitlines()
        assert lines[0].startswith("node,interface,peer,network,state")
        assert len(lines) > 1
        assert answer.headers["content-disposition"] == 'attachment; filename="demo-ports.csv"'

    with_console(tmp_path, story)
    from testbed.api.console.queries import _cell

    assert [_cell(value) for value in ("=1+1", "@x", -1, "h1")] == ["'=1+1", "'@x", -1, "h1"]


def test_a_body_that_is_no_json_object_is_refused(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        path = "/api/labs/demo/views/test/check"
        for body, status in ((b"[1]", 400), (b"{", 400), (b"x" * 2_000_000, 413)):
            assert (await asked("POST", path, body)).status == status
        assert (await asked("POST", path, b"{}", {"content-type": "text/plain"})).status == 415
        assert NOTED == []

    with_console(tmp_path, story)


def test_a_service_of_one_lab_shows_no_other(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        assert (await asked("GET", "/api/labs/demo")).status == 404
        assert (await asked("GET", "/api/console")).json["only"] == "other"

    with_console(tmp_path, story, only="other")


def test_streams_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "MOST_STREAMS", 3)

    async def story(asked: Asked) -> None:
        asked.console.streams = 3
        assert (await asked("GET", "/api/stream")).status == 429
        asked.console.streams = 2
        asked.console.feed.close()
        answer = await asked("GET", "/api/stream")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert b"event: snapshot" in answer.body
        assert asked.console.streams == 2

    with_console(tmp_path, story)


def test_a_shell_is_refused_where_one_only_looks(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        assert await open_socket(asked.app, "/api/labs/demo/shell/p1-s1-h1", headers={"cookie": ""}) == 4403
        closed: list[Any] = []
        received = iter([{"type": "websocket.connect"}])

        async def receive() -> Any:
            return next(received)

        async def send(message: Any) -> None:
            closed.append(message)

        scope = {
            "type": "websocket",
            "path": "/api/labs/demo/shell/p1-s1-h1",
            "raw_path": b"",
            "root_path": "",
            "scheme": "ws",
            "query_string": b"",
            "subprotocols": [],
            "headers": [
                (b"host", HOST.encode()),
                (b"origin", f"http://{HOST}".encode()),
                (b"cookie", asked.cookie.encode()),
            ],
        }
        await asked.app(scope, receive, send)
        assert (closed[-1]["type"], closed[-1]["code"]) == ("websocket.close", 4403)

    with_console(tmp_path, story)


def test_the_source_of_a_view_is_what_its_address_names(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        assert (await asked("GET", "/api/views/machine/do")).status == 405
        assert (await asked("GET", "/api/runs/r/0/1/views/test")).json["base"] == "demo"
        assert isinstance(await asked.console.live_lab("demo"), Source)

    with_console(tmp_path, story)


def test_pages_of_a_record_hear_of_labs_and_tasks(tmp_path: Path) -> None:
    async def story(asked: Asked) -> None:
        console, source = asked.console, FakeSource(live=False)
        feed = console.feed_of_record(source, lambda: b"{}")
        assert console.feed_of_record(source, lambda: b"{}") is feed
        console._publish_now("labs", b"[]")
        assert feed.last == 1
        console.leave_record(source)
        console._publish_now("labs", b"[]")
        assert feed.last == 1, "nobody looks any more"

    with_console(tmp_path, story)
