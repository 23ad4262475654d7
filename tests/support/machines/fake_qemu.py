"""A stand-in for QEMU that behaves as the lab VM's keepers expect, for test_machine_faults.py.

It takes QEMU's options. A machine on the wall clock is an SSH server at the forwarded port and a QMP socket; one in
virtual time writes an outcome over its job's disk; one that tries KVM says on its console that it lives. What goes
wrong is chosen by $FAKE_QEMU: `words` are its last ones, `silent` does nothing, `full` has no room on its disk,
`killed` is killed before the job is done.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import tarfile
import threading
from pathlib import Path
from typing import NoReturn

from testbed.vm.image.checkout import add
from testbed.vm.machine import CLIENT_KEY, Keys
from testbed.vm.virtual.job import FILES, OUTCOME

SAID = b"words of the job\n"


def answer_questions(path: str, state: str) -> None:
    """The machine protocol: how it is."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:
            stream.write('{"QMP": {}}\n')
            stream.flush()
            for line in stream:
                asked = json.loads(line)["execute"]
                status = {"status": state, "running": state == "running"}
                stream.write(json.dumps({"return": status if asked == "query-status" else {}}) + "\n")
                stream.flush()
                if asked == "quit":
                    os._exit(0)


def machine(options: str, fault: str) -> NoReturn:
    from ssh_server import SshServer

    (qmp,) = re.findall(r"-qmp unix:([^,]+)", options)
    (port,) = re.findall(r"hostfwd=tcp:127\.0\.0\.1:(\d+)-:22", options)
    (host,) = re.findall(r"host-key,file=(\S+)", options)
    (authorized,) = re.findall(r"authorized-keys,file=(\S+)", options)
    state = "io-error" if fault == "full" else "running"
    threading.Thread(target=answer_questions, args=(qmp, state), daemon=True).start()
    keys = Keys(client=Path(host).with_name(CLIENT_KEY), host=Path(host), authorized=Path(authorized))
    with SshServer(Path(host).parent, keys=keys, port=int(port)):
        wait_to_be_killed()


def job(options: str, fault: str) -> None:
    console, stdout, _ = re.findall(r"-serial file:(\S+)", options)
    (disk,) = re.findall(r"id=job,mem-path=([^,]+)", options)
    Path(console).write_bytes(b"the console's last words\n")
    Path(stdout).write_bytes(SAID)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(disk, "r+b") as device, tarfile.open(fileobj=device, mode="w|") as tar:  # noqa: PTH123
        add(tar, OUTCOME, json.dumps({"status": 0, "guest_s": 30.0, "verb_s": 1.0}).encode())
        add(tar, f"{FILES}.results/one/record.json", b"{}")


def wait_to_be_killed() -> NoReturn:
    while True:
        signal.pause()


def main(options: str, fault: str) -> None:
    if "--version" in options:
        print(f"QEMU emulator version {os.environ.get('FAKE_QEMU_VERSION', '99.1.2')} (fake)")
    elif fault.startswith("words "):
        sys.exit(fault.removeprefix("words "))
    elif fault == "silent":
        wait_to_be_killed()
    elif "-accel kvm" in options:
        (console,) = re.findall(r"-serial file:(\S+)", options)
        Path(console).write_text("testbed: alive\n")
    elif "-icount" in options:
        job(options, fault)
    else:
        machine(options, fault)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]), os.environ.get("FAKE_QEMU", ""))
