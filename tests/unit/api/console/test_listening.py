"""The console listens where only this machine reaches it, unless there is TLS."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.api.console.listening import CannotListen, ListenAt, Tls, is_loopback, open_socket, parse_bind

TLS = Tls(certificate=Path("c.pem"), key=Path("k.pem"))


@contextmanager
def listening(bind: ListenAt, tls: Tls | None = None, managed: frozenset[str] = frozenset()) -> Iterator[socket.socket]:
    listener = open_socket(bind, tls, managed=managed)
    try:
        yield listener
    finally:
        listener.close()


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("127.0.0.1:9470", ListenAt(host="127.0.0.1", port=9470)),
        ("[::1]:0", ListenAt(host="::1", port=0)),
        ("localhost:80", ListenAt(host="localhost", port=80)),
        ("unix:/run/x.sock", ListenAt(path=Path("/run/x.sock"))),
    ],
)
def test_addresses_are_read(text: str, bind: ListenAt) -> None:
    assert parse_bind(text) == bind
    assert str(bind) == text


@pytest.mark.parametrize("text", ["", "9470", "127.0.0.1", "127.0.0.1:x", "host:99999", "a@b:1", "h:1/x", "unix:"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CannotListen):
        parse_bind(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_reach_is_refused_without_tls(host: str) -> None:
    if host == "::" and not socket.has_ipv6:
        pytest.skip("no IPv6")
    with pytest.raises(CannotListen, match="others reach") as refused:
        open_socket(ListenAt(host=host, port=0), None)
    assert "--tls" in str(refused.value.hint)
    with listening(ListenAt(host=host, port=0), TLS) as listener:  # the attack's way, were it not for the guard
        assert not is_loopback(listener.getsockname()[0])


def test_a_name_counts_as_the_address_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(CannotListen, match="others reach"):
        open_socket(ListenAt(host="localhost", port=0), None)


def test_an_address_of_the_management_network_is_allowed_where_it_is_one() -> None:
    with pytest.raises(CannotListen, match="others reach"):
        open_socket(ListenAt(host="0.0.0.0", port=0), None, managed=frozenset({"10.0.0.1"}))


def test_loopback_needs_no_tls_and_a_port_in_use_is_told() -> None:
    with listening(ListenAt(host="127.0.0.1", port=0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(CannotListen, match="cannot listen") as error:
            open_socket(ListenAt(host="127.0.0.1", port=port), None)
        assert ":0" in str(error.value.hint)


def test_a_unix_socket_is_its_owners_alone_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    mask = os.umask(0)
    try:
        with listening(ListenAt(path=path)):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(CannotListen):
                open_socket(ListenAt(path=path), None)
        with listening(ListenAt(path=path)):  # nobody listens at the old one any more
            pass
    finally:
        os.umask(mask)


def test_nothing_but_a_dead_socket_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(CannotListen):
        open_socket(ListenAt(path=path), None)
    assert path.read_text() == "mine"
