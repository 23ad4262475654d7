"""The service `aaa`: freeradius on the server, which decides who may log in to switches (RADIUS, RFC 2865).

There are two accounts, whose passwords are made for the lab: `operator`, who may look, and `admin`, who may change
what a log-in may change at all (`testbed.lab.features.management.services.ssh`). A switch knows the accounts and what
they may do; it knows no password, and asks the server with a secret of its own (`pam_radius_auth`). Who has the lab's
key comes in without the server: that is the way in while it is down, and what was a break-glass log-in is noted.

A switch sees a /etc/pam.d/sshd, a passwd and a group of its own; this machine's are left alone.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from testbed.base.files import write_atomically
from testbed.lab.features.management.services import status_server
from testbed.lab.features.management.services.service import File, Place, Port, Service, ServiceProgram, Surroundings

NAME = "aaa"
USER = "freerad"
PORT = 1812
OPERATOR, ADMIN = "operator", "admin"
OPERATOR_ID = 1_900_000_001
"""A number of no range that anybody hands out numbers of (systemd's docs/UIDS-GIDS.md)."""
ACCOUNTS: Mapping[str, tuple[int, str]] = MappingProxyType({OPERATOR: (OPERATOR_ID, "/"), ADMIN: (0, "/root")})
"""The user number and the home of each account on a switch."""
PAM_MODULE = "pam_radius_auth"
ANSWER_S = 3
"""The time for which a switch waits for the server, asking once: pam_radius_auth takes no less (its
pam_radius_auth.conf)."""
_DICTIONARIES = ("rfc2865", "rfc2866", "rfc2869", "freeradius.internal")


def accounts_directory(lab: Surroundings) -> Path:
    """Return where the passwords of accounts and the secrets of switches are, for root alone."""
    return lab.directory / f".{NAME}"


def password_file(lab: Surroundings, account: str) -> Path:
    """Return where the password of an account is."""
    return accounts_directory(lab) / account


def asks(place: Place) -> bool:
    """Tell whether log-ins to a node are for the server to decide."""
    return NAME in place.lab.services and place.node in place.lab.switches


class Aaa(Service):
    name = NAME
    needs = ("freeradius", PAM_MODULE)

    def user(self, place: Place) -> str:
        return USER

    def prepare(self, lab: Surroundings) -> None:
        directory = accounts_directory(lab)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (*ACCOUNTS, *(f"secret-{node}" for node in _clients(lab))):
            if not (path := directory / name).exists():
                write_atomically(path, secrets.token_hex(16), mode=0o600, durable=False)

    def files(self, place: Place) -> Mapping[str, File]:
        dictionary = [f"$INCLUDE /usr/share/freeradius/dictionary.{name}" for name in _DICTIONARIES]
        users = [
            f'{account} SSHA2-256-Password := "{_hash(password_file(place.lab, account).read_text())}"'
            for account in ACCOUNTS
        ]
        return {
            "dictionary": File(text="\n".join(dictionary) + "\n"),
            "users": File(text="\n".join(users) + "\n", secret=True),
            "clients": File(text="\n".join(_client_lines(place.lab)) + "\n", secret=True),
            "radiusd.conf": File(text="\n".join(_configuration(place)) + "\n"),
        }

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        directory = str(place.directory)
        arguments = ("freeradius", "-f", "-n", "radiusd", "-d", directory, "-D", directory, "-l", "stdout")
        return (ServiceProgram(name="freeradius", arguments=arguments, user=USER),)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="udp", number=PORT),)

    def answer(self, place: Place) -> str | None:
        if not status_server.server_answers(str(place.address), PORT, _secret(place.lab, place.node)):
            return None
        return f"{len(ACCOUNTS)} accounts, {len(_clients(place.lab)) - 1} switches"


def sshd_lines(place: Place) -> list[str]:
    """Return what the service adds to the configuration of a switch's sshd, beside `UsePAM yes`: the accounts come in
    by password alone, root by the key alone."""
    return [
        f"AllowUsers root {' '.join(ACCOUNTS)}",
        "PermitRootLogin yes",  # admin has the number of root
        f"Match User {','.join(ACCOUNTS)}",
        "AuthorizedKeysFile none",
        "AuthenticationMethods password",
        "Match User root",
        "AuthenticationMethods publickey",
    ]


def switch_files(place: Place) -> dict[str, File]:
    """The files of a switch by which its sshd asks the server, and of which it sees `switch_binds` in /etc."""
    lab = place.lab
    radius = f"{lab.server_address}:{PORT} {_secret(lab, place.node)} {ANSWER_S} {place.address}\n"
    configuration = place.directory / "radius.conf"
    notice = f"{sys.executable} -I -S {status_server.__file__} {configuration} {place.log}"
    pam = [
        f"auth required {PAM_MODULE}.so conf={configuration} retry=0 client_id={place.node}",
        "account required pam_permit.so",
        "password required pam_deny.so",
        "session [success=ignore default=1] pam_succeed_if.so quiet user = root",
        f"session optional pam_exec.so quiet stdout {notice}",
        "session required pam_permit.so",
    ]
    return {
        "radius.conf": File(text=radius, secret=True),
        "pam": File(text="\n".join(pam) + "\n"),
        "passwd": File(text=_passwd(Path("/etc/passwd").read_text())),
        "group": File(text=_group(Path("/etc/group").read_text())),
    }


def switch_binds() -> dict[str, str]:
    """The files that a switch's sshd sees in the place of this machine's."""
    return {"/etc/pam.d/sshd": "pam", "/etc/passwd": "passwd", "/etc/group": "group"}


def said_of(place: Place) -> str:
    """Return the state of log-ins to a switch in a few words; it is asked in its network namespace."""
    lab = place.lab
    if status_server.server_answers(str(lab.server_address), PORT, _secret(lab, place.node)):
        return f"asks {lab.server}"
    return f"{lab.server} is silent, the lab's key alone"


def _passwd(machine: str) -> str:
    lines = _without(machine, ACCOUNTS)
    lines += [
        f"{name}:x:{number}:{number}:{name} of the lab:{home}:/bin/bash" for name, (number, home) in ACCOUNTS.items()
    ]
    return "\n".join(lines) + "\n"


def _group(machine: str) -> str:
    return "\n".join([*_without(machine, (OPERATOR,)), f"{OPERATOR}:x:{OPERATOR_ID}:"]) + "\n"


def _without(text: str, names: Mapping[str, object] | tuple[str, ...]) -> list[str]:
    """The lines of a passwd or group of which none has these names."""
    return [line for line in text.splitlines() if line.partition(":")[0] not in names]


def _clients(lab: Surroundings) -> tuple[str, ...]:
    """Who may ask: the server itself, and the switches that run sshd."""
    served = set(lab.served)
    return (lab.server, *(node for node in lab.switches if node in served))


def _secret(lab: Surroundings, node: str) -> str:
    return (accounts_directory(lab) / f"secret-{node}").read_text()


def _hash(password: str) -> str:
    """The password as rlm_pap has it: SHA-256 over it and a salt, which follows. It is 128 random bits, and needs no
    slow hash, nor a salt that does not follow from it: the same password has the same hash."""
    salt = hashlib.sha256(b"salt" + password.encode()).digest()[:8]
    return base64.b64encode(hashlib.sha256(password.encode() + salt).digest() + salt).decode()


def _client_lines(lab: Surroundings) -> Iterator[str]:
    for node in _clients(lab):
        yield f"client {node} {{"
        yield f"  ipaddr = {lab.addresses[node]}"
        yield f"  secret = {_secret(lab, node)}"
        yield "}"


def _configuration(place: Place) -> Iterator[str]:
    yield f"name = radiusd\nprefix = /usr\nlibdir = /usr/lib/freeradius\nlogdir = {place.own}\nrun_dir = {place.own}"
    yield "hostname_lookups = no"
    yield "log {\n  destination = stdout\n  auth = yes\n}"
    yield "security {\n  max_attributes = 200\n  reject_delay = 1\n  status_server = yes\n}"
    yield "thread pool {\n  start_servers = 1\n  max_servers = 4\n  min_spare_servers = 1\n  max_spare_servers = 2\n}"
    yield f"modules {{\n  files {{\n    usersfile = {place.directory / 'users'}\n  }}\n  pap {{\n  }}\n}}"
    yield f"$INCLUDE {place.directory / 'clients'}"
    yield "server log-ins {"
    yield f"  listen {{\n    type = auth\n    ipaddr = {place.address}\n    port = {PORT}\n  }}"
    yield "  authorize {\n    files\n    pap\n  }"
    yield "  authenticate {\n    Auth-Type PAP {\n      pap\n    }\n  }"
    yield "}"


SERVICE = Aaa()
