"""How a console starts: what it shows first, by which names it is known, and whose certificate it has."""

import queue
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from testbed.api.console import browser
from testbed.api.console.console import ConsoleSettings
from testbed.api.console.listening import CannotListen, ListenAt, Tls, certificate_names, open_socket
from testbed.api.console.start import ConsoleServing, _Link, opened, roots_of, serve_console
from testbed.base.errors import LabNotFound, TestbedError
from testbed.lab.core.deploy.records.state import StateDirectory

PATIENCE_S = 20.0


@pytest.fixture
def said() -> Iterator[list[str]]:
    yield []


def link(said: list[str], bind: ListenAt, tls: Tls | None = None, known_as: ListenAt | None = None) -> _Link:
    serving = ConsoleServing(bind=bind, settings=ConsoleSettings(roots=()), tls=tls, known_as=known_as)
    with closing(open_socket(bind, tls)) as listener:
        return _Link(serving, listener, said.append)


def test_names_are_those_of_the_certificate(tls: Tls, tmp_path: Path) -> None:
    assert certificate_names(tls) == {"lab.example", "192.0.2.1"}
    with pytest.raises(CannotListen, match="no certificate"):
        certificate_names(Tls(certificate=tls.key, key=tls.key))
    with pytest.raises(CannotListen, match="cannot read"):
        certificate_names(Tls(certificate=tmp_path / "none.pem", key=tls.key))


def test_a_console_at_all_addresses_is_known_by_its_certificate(tls: Tls, said: list[str]) -> None:
    made = link(said, ListenAt(host="0.0.0.0", port=0), tls)
    made.show()
    port = said[0].partition("/?")[0].rpartition(":")[2]
    assert made.names.know(f"lab.example:{port}")
    assert made.names.know(f"192.0.2.1:{port}")
    assert not made.names.know(f"evil.example:{port}")
    assert said[0].startswith("console: https://")


def test_the_console_of_a_lab_is_reached_through_its_server(said: list[str]) -> None:
    """By `ssh -L`, whose other end has any port; a name that a stranger has made into this machine is none of its."""
    bind = ListenAt(host="127.0.0.1", port=0)
    serving = ConsoleServing(bind=bind, settings=ConsoleSettings(roots=()), of_lab="demo")
    with closing(open_socket(bind, None)) as listener:
        made = _Link(serving, listener, said.append)
    assert made.sessions is None
    assert made.names.know("127.0.0.1:12345") and made.names.know("localhost:9470")
    assert not made.names.know("evil.example:9470")


def test_each_login_shows_a_link_with_another_token(said: list[str]) -> None:
    made = link(said, ListenAt(host="127.0.0.1", port=0))
    made.show()
    first = said[0].partition("token=")[2].partition(" ")[0]
    assert made.sessions.log_in(first) is not None
    made.used()
    second = said[1].partition("token=")[2]
    assert said[1].startswith("for another browser: http://127.0.0.1:")
    assert second != first
    assert made.sessions.log_in(second) is not None


def test_a_forwarded_console_is_known_by_the_address_of_the_other_end_alone(said: list[str]) -> None:
    made = link(said, ListenAt(host="127.0.0.1", port=0), known_as=ListenAt(host="127.0.0.1", port=8000))
    made.show()
    own = said[0].partition("://")[2].partition("/")[0]
    assert made.names.know("127.0.0.1:8000")
    assert not made.names.know(own)


def test_a_unix_socket_is_reached_through_ssh(tmp_path: Path, said: list[str]) -> None:
    """No browser opens a Unix socket: the link is that of one end of `ssh -L`."""
    path = tmp_path / "c.sock"
    made = link(said, ListenAt(path=path))
    made.show()
    told, _, token = said[0].removesuffix(" (Ctrl-C ends it)").partition("?token=")
    assert told == f"console at {path}; after `ssh -L 9470:{path} HOST` elsewhere: http://127.0.0.1:9470/"
    assert made.names.know("127.0.0.1:9470")
    assert made.names.know("localhost:12345")
    assert not made.names.know("evil.example:12345")
    assert made.sessions.log_in(token) is not None
    serving = ConsoleServing(bind=ListenAt(path=path), settings=ConsoleSettings(roots=()), opens_browser=True)
    with pytest.raises(CannotListen, match="no browser reaches"):
        serve_console(serving, said.append)


def test_what_is_shown_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "results" / "a").mkdir(parents=True)
    (tmp_path / "here" / "results" / "a" / "record.json").write_text("{}")
    (tmp_path / "far" / "b").mkdir(parents=True)
    (tmp_path / "far" / "b" / "record.json").write_text("{}")
    (tmp_path / "here" / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    state = StateDirectory(tmp_path / "state", tmp_path / "run")
    assert opened(None, roots_of(None), state) is None
    assert opened("results/a", roots_of("results/a"), state) == "/api/runs/here~results~a/0/1"
    assert roots_of("../far/b") == (tmp_path / "here", tmp_path / "far")
    assert opened("../far/b", roots_of("../far/b"), state) == "/api/runs/far~b/0/1"
    file = "../far/b/record.json"
    assert opened(file, roots_of(file), state) == "/api/runs/far~b/0/1"
    with pytest.raises(TestbedError, match="no record"):
        opened("empty", roots_of("empty"), state)
    with pytest.raises(LabNotFound):
        opened("demo", roots_of("demo"), state)
    (tmp_path / "state" / "labs" / "demo").mkdir(parents=True)
    (tmp_path / "state" / "labs" / "demo" / "lab.json").write_text("{}")
    assert opened("demo", roots_of("demo"), state) == "/api/labs/demo"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_console_without_a_login_is_on_a_node_of_its_lab_or_nowhere(host: str, tls: Tls, said: list[str]) -> None:
    bind, settings = ListenAt(host=host, port=0), ConsoleSettings(roots=(), only="no-such-lab")
    with pytest.raises(CannotListen, match="no node of no-such-lab"):
        serve_console(ConsoleServing(bind=bind, settings=settings, tls=tls, of_lab="no-such-lab"), said.append)
    assert said == []


def test_a_browser_is_handed_a_file_of_its_owner_and_no_token(
    said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever lists processes sees the command lines of all of them (proc(5), cmdline)."""
    opened_with: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(browser.webbrowser, "open", lambda address: opened_with.put(address) is None)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    bind = ListenAt(host="127.0.0.1", port=0)
    serving = ConsoleServing(bind=bind, settings=ConsoleSettings(roots=()), opens_browser=True)
    with closing(open_socket(bind, None)) as listener:
        made = _Link(serving, listener, said.append)
    made.show()
    link = said[0].split()[1]
    token = link.partition("token=")[2]
    address = opened_with.get(timeout=PATIENCE_S)
    assert token and token not in address and address.startswith(f"file://{tmp_path}/")
    page = Path(address.removeprefix("file://"))
    assert link in page.read_text()
    assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    made.used()
    assert not page.parent.exists(), "the token is worth nothing, and its file is gone"
    assert opened_with.empty()


def test_a_browser_that_is_waited_for_holds_nothing_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As one of a terminal, or one that BROWSER names (Python's webbrowser waits until it ends)."""
    ended, told = threading.Event(), queue.Queue[str]()
    monkeypatch.setattr(browser.webbrowser, "open", lambda address: not ended.wait(PATIENCE_S))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = browser.LinkFile()
    file.open("http://127.0.0.1:9470/?token=x", told.put)
    assert told.empty()
    ended.set()
    assert "--open: no browser was found" in told.get(timeout=PATIENCE_S)
    file.remove()
