"""What a page of a stranger's can do to a console that its reader has logged in to: in a real browser, first without
the guard, where each attack works, and then with it.

The stranger's page is at another port of 127.0.0.1, which browsers count as the same site: its cookies go along. Or it
is at a name that resolves to this machine (DNS rebinding).
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from console_browser import STRANGER

SUPPORT = Path(__file__).parents[2] / "support/console"
MARKUP = "<img src=x onerror='window.attacked = 1'>"
POST = """async at => {
  const words = {method: "POST", mode: "no-cors", credentials: "include", body: "{}"};
  try { await fetch(`${at}/api/act`, words); } catch { /* whether it was done, the application knows */ }
}"""
FORM = """at => new Promise(done => {
  const form = document.createElement("form"), frame = document.createElement("iframe");
  frame.name = "into"; frame.onload = done; document.body.append(frame, form);
  Object.assign(form, {method: "POST", action: `${at}/api/act`, target: "into"});
  form.submit();
  setTimeout(done, 3000);
})"""
SHELL = """at => new Promise(done => { const shell = new WebSocket(`${at.replace("http", "ws")}/api/shell`);
  shell.onopen = () => { shell.send("rm -rf /"); setTimeout(done, 300); }; shell.onerror = () => done(); })"""
STREAM = """at => new Promise(done => { const image = new Image(); image.onload = image.onerror = () => done();
  image.src = `${at}/api/stream`; })"""
READ = """async at => { const answer = await fetch(`${at}/api/noted`); return answer.ok; }"""

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prey:
    """An application that a stranger is after, and a browser that has logged in to it."""

    port: int
    cookie: str
    context: Any

    @property
    def at(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def noted(self) -> list[str]:
        """What was done to it."""
        page = self.context.new_page()
        try:
            page.goto(f"{self.at}/")
            return list(page.evaluate("async () => (await fetch('/api/noted')).json()"))
        finally:
            page.close()


@contextmanager
def prey(browser: Any, guard: str) -> Iterator[Prey]:
    command = [sys.executable, str(SUPPORT / "guarded_app.py"), guard]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port, cookie = process.stdout.readline().split()
        context = browser.new_context()
        context.add_cookies([
            {"name": "testbed-console", "value": cookie, "domain": "127.0.0.1", "path": "/",
             "httpOnly": True, "sameSite": "Strict"}
        ])  # fmt: skip
        try:
            yield Prey(port=int(port), cookie=cookie, context=context)
        finally:
            context.close()
            process.terminate()


@pytest.fixture(scope="module")
def bare(browser: Any) -> Iterator[Prey]:
    with prey(browser, "none") as found:
        yield found


@pytest.fixture(scope="module")
def guarded(browser: Any) -> Iterator[Prey]:
    with prey(browser, "guard") as found:
        yield found


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a stranger's page."""
    directory = tmp_path_factory.mktemp("stranger")
    (directory / "index.html").write_text("<!doctype html><title>Win a GPU</title><body>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.parametrize(
    ("attack", "does"), [(POST, "/api/act"), (FORM, "/api/act"), (SHELL, "shell"), (STREAM, "/api/stream")],
    ids=["post", "form", "websocket", "stream"],
)  # fmt: skip
def test_a_page_of_another_port(attack: str, does: str, bare: Prey, guarded: Prey, stranger: str) -> None:
    for one in (bare, guarded):
        page = one.context.new_page()
        page.goto(stranger)
        page.evaluate(attack, one.at)
        page.close()
    assert [what for what in bare.noted if what.startswith(does)][-1].startswith(f"{does} by its user")
    assert guarded.noted == []


def test_a_name_that_suddenly_is_this_machine(bare: Prey, guarded: Prey) -> None:
    """A page that came from a stranger's name, whose address is ours from now on, is of the same origin as we are."""
    found = []
    for one in (bare, guarded):
        page = one.context.new_page()
        one.context.add_cookies([
            {"name": "testbed-console", "value": one.cookie, "domain": STRANGER, "path": "/"}
        ])  # the worst case: a console that asks for no login  # fmt: skip
        at = f"http://{STRANGER}:{one.port}"
        page.goto(f"{at}/")
        found.append(page.evaluate(READ, at))
        page.close()
    assert found == [True, False]


def test_markup_runs_nothing_under_the_policy(bare: Prey, guarded: Prey) -> None:
    """Even where a page took a name for markup, which ours do not, its script would not be run."""
    found = []
    for one in (bare, guarded):
        page = one.context.new_page()
        page.goto(f"{one.at}/?name={quote(MARKUP)}")
        assert page.locator("img").count() == 1
        page.wait_for_function("() => document.images[0].complete")
        found.append(page.evaluate("() => window.attacked ?? null"))
        page.close()
    assert found == [1, None]


def test_no_page_of_a_stranger_has_it_in_a_frame(bare: Prey, guarded: Prey, stranger: str) -> None:
    found = []
    for one in (bare, guarded):
        page = one.context.new_page()
        page.goto(stranger)
        page.evaluate(
            "at => new Promise(done => { const frame = document.createElement('iframe'); frame.onload = done;"
            " frame.src = at; document.body.append(frame); })",
            f"{one.at}/",
        )
        found.append(page.frames[-1].locator("h1").count())
        page.close()
    assert found == [1, 0]
