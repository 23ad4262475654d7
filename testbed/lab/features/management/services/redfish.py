"""The service `redfish`: one BMC for all nodes on the server, which switches their power (DMTF DSP0266).

It is sushy-tools' emulator with systems of its fake driver, and notifies `testbed serve power` of each change, which
does it to the node: at once, while the emulated system takes up to eleven seconds until it says so, as hardware does.
Who asks gives a name and a password, which is made for the lab.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import sys
import uuid
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path
from pprint import pformat

from testbed.base.files import write_atomically
from testbed.lab.features.management.services.asking import greeting, is_bound
from testbed.lab.features.management.services.service import File, Place, Port, Service, ServiceProgram, Surroundings

USER = "daemon"
"""Whom nothing else of a lab runs as: `serve power` listens to it."""
PORT = 8000
ACCOUNT = "admin"
POWER = IPv4Address("127.0.0.1")
POWER_PORT = 9465
EMULATOR = "sushy-emulator"
_NAMESPACE = uuid.UUID("6f1f1f0e-5b0a-5d0e-9d0c-6d6f62746573")
_SALT = b"$2a$04$"
"""Bcrypt with the fewest rounds there are: the password is 256 random bits. So its salt may follow from it, and a
password has one hash."""
_OF_BASE64 = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
)


def system_uuid(lab: str, node: str) -> str:
    """The UUID by which Redfish knows a node."""
    return str(uuid.uuid5(_NAMESPACE, f"{lab}/{node}"))


def password_file(lab: Surroundings) -> Path:
    """Return where the password of a lab's BMC is, for root alone."""
    return lab.directory / f".{Redfish.name}" / "password"


class Redfish(Service):
    name = "redfish"
    needs = (EMULATOR,)
    looks_into_nodes = True

    def user(self, place: Place) -> str:
        return USER

    def prepare(self, lab: Surroundings) -> None:
        path = password_file(lab)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_atomically(path, secrets.token_hex(32), mode=0o600, durable=False)

    def files(self, place: Place) -> Mapping[str, File]:
        import bcrypt  # paramiko's

        lab = place.lab
        systems = [
            {
                "uuid": system_uuid(lab.lab, node),
                "name": node,
                "power_state": "On",
                "external_notifier": True,
                "nics": [{"mac": lab.macs[node], "ip": str(address)}],
            }
            for node, address in lab.addresses.items()
            if node in lab.switchable
        ]
        settings = {
            "SUSHY_EMULATOR_FAKE_DRIVER": True,
            "SUSHY_EMULATOR_STATE_DIR": str(place.own),
            "SUSHY_EMULATOR_LISTEN_IP": str(place.address),
            "SUSHY_EMULATOR_LISTEN_PORT": PORT,
            "SUSHY_EMULATOR_AUTH_FILE": str(place.directory / "htpasswd"),
            "EXTERNAL_NOTIFICATION_URL": f"http://{POWER}:{POWER_PORT}/",
            "SUSHY_EMULATOR_FAKE_SYSTEMS": systems,
        }
        password = password_file(lab).read_bytes()
        salt = base64.b64encode(hashlib.sha256(password).digest()[:16]).rstrip(b"=").translate(_OF_BASE64)
        hashed = bcrypt.hashpw(password, _SALT + salt).decode().replace("$2a$", "$2y$", 1)
        return {
            "sushy.conf": File(text="".join(f"{key} = {pformat(value)}\n" for key, value in settings.items())),
            "htpasswd": File(text=f"{ACCOUNT}:{hashed}\n", secret=True),
        }

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        power = ServiceProgram(
            name="power",
            arguments=(
                *(sys.executable, "-m", "testbed", "serve", "power", "-n", place.lab.lab),
                *("--listen", f"{POWER}:{POWER_PORT}", "--user", USER),
            ),
            # It starts daemons and services in all nodes, with the capabilities that they have.
            capabilities=_ALL,
            environment=place.lab.environment,
        )
        emulator = ServiceProgram(
            name=EMULATOR,
            arguments=(EMULATOR, "--config", str(place.directory / "sushy.conf")),
            user=USER,
            capabilities=("dac_read_search",),  # our Python may be in somebody's home
        )
        return (power, emulator)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="tcp", number=PORT),)

    def answer(self, place: Place) -> str | None:
        if greeting(place.address, PORT) is None or not is_bound("tcp", POWER_PORT):
            return None
        return f"{len(place.lab.switchable)} systems"


_ALL = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("net_bind_service", "net_admin", "net_raw", "sys_chroot", "sys_ptrace", "sys_admin", "sys_resource", "bpf"),
)


SERVICE = Redfish()
