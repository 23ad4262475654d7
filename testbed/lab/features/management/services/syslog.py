"""The service `syslog`: rsyslogd on the server, which has a file for each node, and on every node, which sends to it.

A node sends what its routing daemons and its other services write into their logs, as messages of RFC 5424 over TCP.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from testbed.lab.core.drivers.routing.frr import FRR_USER
from testbed.lab.features.management.services.asking import connections, greeting
from testbed.lab.features.management.services.service import LOG, RELOAD_S, File, Place, Port, Service, ServiceProgram

USER = "nobody"
PORT = 514
MOST_SENDERS = 2048
"""The most connections there can be at a time: one of each node, and clients of other kinds."""
NODES = "nodes.json"
"""The file of the server's that has the nodes by their addresses (rsyslog's lookup tables)."""
COLLECTED = "hosts"
"""The directory of the server's files, one for each node that has sent something."""
OWN_LOG = "rsyslogd.log"
"""In the server's own directory: what rsyslogd says of itself, which is how one sees that it has read a file anew."""
POLL_S = 0.01
_READ_ANEW = b"' reloaded from file '"
_ROUTING = ("bgpd", "zebra", "bfdd", "mgmtd")


class Syslog(Service):
    name = "syslog"
    needs = ("rsyslogd",)
    rereads = MappingProxyType({NODES: "rsyslogd"})

    def user(self, place: Place) -> str:
        return USER

    def files(self, place: Place) -> Mapping[str, File]:
        lines = _collector(place) if place.is_server else _sender(place)
        files = {"rsyslog.conf": File(text="\n".join(lines) + "\n")}
        if place.is_server:
            table = [{"index": str(address), "value": node} for node, address in place.lab.addresses.items()]
            known = {"version": 1, "nomatch": "", "type": "string", "table": table}
            files[NODES] = File(text=json.dumps(known, indent=1) + "\n")
        return files

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        program = ServiceProgram(
            name="rsyslogd",
            arguments=("rsyslogd", "-n", "-f", str(place.directory / "rsyslog.conf"), "-i", "NONE"),
            user=USER,
            groups=(FRR_USER,) if place.node in place.lab.routing else (),  # the logs of routing daemons are its
            capabilities=("net_bind_service",) if place.is_server else (),
            hostname=True,
            confined=True,
        )
        return (program,)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="udp", number=PORT), Port(kind="tcp", number=PORT)) if place.is_server else ()

    def tell(self, place: Place, changed: Collection[str], pids: Mapping[str, int]) -> None:
        """Have the server know its nodes anew, and wait until it does: what a node sends before would be of nobody.

        Raises `OSError` where it does not read them within `RELOAD_S`.
        """
        said = place.own / OWN_LOG
        read_before = _times_read(said)
        os.kill(pids["rsyslogd"], signal.SIGHUP)
        deadline = time.monotonic() + RELOAD_S
        while _times_read(said) == read_before:
            if time.monotonic() > deadline:
                raise OSError(f"rsyslogd has not read {NODES} anew within {RELOAD_S:g} s")
            time.sleep(POLL_S)

    def answer(self, place: Place) -> str | None:
        if not place.is_server:
            found = connections(place.lab.server_address, PORT)
            return None if found and not any(found) else f"sends to {place.lab.server}" if found else "nothing to send"
        if greeting(place.address, PORT) is None:
            return None
        return f"logs of {sum(1 for _ in (place.own / COLLECTED).glob('*.log'))} nodes"


def _times_read(said: Path) -> int:
    return said.read_bytes().count(_READ_ANEW) if said.exists() else 0


def _collector(place: Place) -> Iterator[str]:
    yield from _inputs(place)
    yield 'module(load="imudp")'
    yield f'module(load="imtcp" maxSessions="{MOST_SENDERS}")'
    yield f'input(type="imudp" port="{PORT}" address="{place.address}")'
    yield f'input(type="imtcp" port="{PORT}" address="{place.address}")'
    # A file for each address that sends, whatever name a message claims.
    yield f'template(name="file" type="string" string="{place.own / COLLECTED}/%$.node%.log")'
    yield 'template(name="line" type="string" string="%timereported:::date-rfc3339% %programname%: %msg:::drop-cc%\\n")'
    yield f'lookup_table(name="nodes" file="{place.directory / NODES}" reloadOnHUP="on")'
    yield 'if $fromhost-ip == "127.0.0.1" and $syslogtag startswith "rsyslogd" then {'
    yield f'  action(type="omfile" file="{place.own / OWN_LOG}" fileCreateMode="0640")'
    yield "  stop"
    yield "}"
    yield 'set $.node = lookup("nodes", $fromhost-ip);'
    yield f'if $inputname == "imfile" then set $.node = "{place.node}";'
    yield 'if $.node == "" then stop'
    yield 'action(type="omfile" dynaFile="file" template="line" fileCreateMode="0640" dirCreateMode="0750")'


def _sender(place: Place) -> Iterator[str]:
    yield from _inputs(place)
    # As RFC 5424 has it, without the carriage returns that some programs print.
    message = "<%PRI%>1 %TIMESTAMP:::date-rfc3339% %HOSTNAME% %APP-NAME% - - - %msg:::drop-cc%\\n"
    yield f'template(name="message" type="string" string="{message}")'
    yield (
        f'action(type="omfwd" target="{place.lab.server_address}" port="{PORT}" protocol="tcp" template="message"'
        ' action.resumeRetryCount="-1" action.resumeInterval="1" queue.type="LinkedList" queue.size="10000")'
    )


def _inputs(place: Place) -> Iterator[str]:
    """Yield the inputs of a node: the logs of its routing daemons and of its other services."""
    lab = place.lab
    internal = ' processInternalMessages="on"' if place.is_server else ""
    yield f'global(workDirectory="{place.own}"{internal})'
    yield 'module(load="imfile" mode="inotify")'
    for daemon in _ROUTING if place.node in lab.routing else ():
        yield _watched(str(lab.run / place.node / f"{daemon}.log"), daemon)
    for name in lab.services:
        if name != Syslog.name and place.has(name):
            yield _watched(str(lab.directory / place.node / name / LOG), name)


def _watched(path: str, tag: str) -> str:
    return f'input(type="imfile" file="{path}" tag="{tag}:" severity="info" facility="local0" reopenOnTruncate="on")'


SERVICE = Syslog()
