"""The address that the console listens at: an address of loopback, a Unix socket, or another address under TLS."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from testbed.base.errors import TestbedError

DEFAULT_BIND = "127.0.0.1:9470"
_UNIX = "unix:"
_BACKLOG = 128


class CannotListen(TestbedError):
    """The address is in use, not ours, or not one that a console may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The files of a certificate with its chain, and of its key, both PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAt:
    """An address to listen at: a Unix socket's `path`, or a `host` and a TCP `port`, which is 0 for any."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bind(text: str) -> ListenAt:
    """Read `127.0.0.1:9470`, `[::1]:9470` or `unix:PATH`. Raises `CannotListen`."""
    if text.startswith(_UNIX):
        if not text[len(_UNIX) :]:
            raise CannotListen("--bind unix: names no socket", hint="for example --bind unix:/run/console.sock")
        return ListenAt(path=Path(text[len(_UNIX) :]))
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
        if not parts.hostname or port is None or parts.path or parts.query or parts.fragment or "@" in text:
            raise ValueError(text)
    except ValueError as error:
        raise CannotListen(
            f"--bind {text}: no address to listen at", hint=f"for example {DEFAULT_BIND}, [::1]:9470 or unix:PATH"
        ) from error
    return ListenAt(host=parts.hostname, port=port)


def open_socket(bind: ListenAt, tls: Tls | None, *, managed: Collection[str] = ()) -> socket.socket:
    """Make a socket that is bound and listens. `managed` are addresses of a lab's management network that a console may
    have, too.

    Raises `CannotListen`, also for an address that others reach, where there is no TLS.
    """
    return _unix_socket(bind.path) if bind.path is not None else _tcp_socket(bind, tls, managed)


def _tcp_socket(bind: ListenAt, tls: Tls | None, managed: Collection[str]) -> socket.socket:
    try:
        found = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise CannotListen(f"{bind.host}: no address of this machine", hint=f"for example {DEFAULT_BIND}") from error
    family, kind, protocol, _, address = found[0]
    numeric = str(address[0])
    if not is_loopback(numeric) and tls is None and numeric not in managed:
        raise CannotListen(
            f"--bind {bind}: others reach this address, and they would read what is typed here on the way",
            hint="give --tls CERTIFICATE KEY, or stay at 127.0.0.1 and forward it: testbed --on ssh://HOST console",
        )
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        hint = (
            f"another program has it; any free one: --bind {bind.host}:0" if error.errno == errno.EADDRINUSE else None
        )
        raise CannotListen(f"cannot listen at {bind}: {error.strerror}", hint=hint) from error
    return listener


def _unix_socket(path: Path) -> socket.socket:
    """Make a socket that its owner alone can connect to, from the moment on that it is there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead(path)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        what = error.strerror or str(error)
        hint = "another console may serve there" if error.errno == errno.EADDRINUSE else None
        raise CannotListen(f"cannot listen at {path}: {what}", hint=hint) from error
    return listener


def _remove_dead(path: Path) -> None:
    """Remove a socket that nobody listens at any more; nothing else is removed."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
            try:
                asker.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()


def is_loopback(address: str) -> bool:
    """Tell whether only this machine reaches a numeric address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def certificate_names(tls: Tls) -> frozenset[str]:
    """Return the names that a certificate is for (RFC 5280, subjectAltName). Raises `CannotListen`."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(tls.certificate.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except OSError as error:
        raise CannotListen(f"--tls: cannot read {tls.certificate}: {error.strerror}") from error
    except ValueError as error:
        raise CannotListen(f"--tls: {tls.certificate} is no certificate in PEM") from error
    except x509.ExtensionNotFound:
        return frozenset()
    hosts = names.get_values_for_type(x509.DNSName)
    return frozenset([*(name.lower() for name in hosts), *map(str, names.get_values_for_type(x509.IPAddress))])
