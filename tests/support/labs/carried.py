"""Programs on hosts whose TCP is carried: small Python scripts, started in a lab's hosts, that tell what they saw."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.lab_plan import PortPlan

_COMMON = """
import errno, json, os, resource, select, socket, struct, sys, time
def say(**found):
    print(json.dumps(found), flush=True)
def whole(item, size):
    data = b""
    while len(data) < size:
        more = item.recv(min(1 << 16, size - len(data)))
        if not more:
            break
        data += more
    return data
"""
PATIENCE_S = 60.0


class HostProgram:
    """A script on a host. It has what `_COMMON` defines, and its arguments in `sys.argv`."""

    def __init__(self, lab: RunningLab, host: str, script: str, *arguments: object) -> None:
        self.process: subprocess.Popen[Any] = lab.spawn(
            host,
            [sys.executable, "-c", _COMMON + script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def hear(self) -> dict[str, Any]:
        """Return the next line that it says."""
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        return dict(json.loads(line))

    def end(self) -> int:
        """Wait for its end."""
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        self.process.kill()
        self.end()


def address(nic: PortPlan) -> str:
    return str(nic.address.ip)


ECHO = """
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.socket(family)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen(4096)
say(listening=True)
for _ in range(int(sys.argv[3])):
    item, peer = listener.accept()
    data = b""
    while more := item.recv(1 << 16):
        data += more
    item.sendall(data[::-1])
    say(peer=peer[:2], name=item.getsockname()[:2], size=len(data))
    item.close()
"""
"""Accepts so many connections at an address and a port, one after the other; reads each to its end, and sends back what
came, backwards."""
CALL = """
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
item = socket.socket(family)
item.connect((sys.argv[1], int(sys.argv[2])))
peer, name = item.getpeername()[:2], item.getsockname()[:2]
data = os.urandom(int(sys.argv[3]))
item.sendall(data)
item.shutdown(socket.SHUT_WR)
back = b""
while more := item.recv(1 << 16):
    back += more
say(peer=peer, name=name, right=back == data[::-1])
"""
"""Sends random bytes, ends its direction, and reads what comes back."""
