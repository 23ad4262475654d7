"""The library between OpenSM and ibsim: while a question to another manager is open, no other request leaves."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.base.datapath.build import compiled, source_texts

pytestmark = pytest.mark.process
HEAD, MAD = 64, 256
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-DPATIENCE_S=1", "-DLOOK_MS=20")
NODE_INFO, SM_INFO = 0x11, 0x20
GET, ANSWER = 0x01, 0x81
PATIENCE_S = 10.0
SHORT_S = 0.2
FAKE = """
#include <errno.h>
#include <poll.h>
#include <unistd.h>
int umad_send(int port, int agent, void *umad, int length, int timeout, int retries)
{
	return write(3, umad, 320) == 320 ? 0 : -1;
}
int umad_recv(int port, void *umad, int *length, int timeout)
{
	struct pollfd one = {.fd = 4, .events = POLLIN};
	if (poll(&one, 1, timeout) <= 0)
		return -ETIMEDOUT;
	return read(4, umad, 320) == 320 ? 7 : -EIO;
}
"""
PROGRAM = """
import ctypes, os, sys, threading
library = ctypes.CDLL(None)
def receive():
    while True:
        room, length = ctypes.create_string_buffer(320), ctypes.c_int(256)
        found = library.umad_recv(0, room, ctypes.byref(length), -1)
        os.write(1, bytes([found]) + room.raw)
threading.Thread(target=receive, daemon=True).start()
def send(umad):
    library.umad_send(0, 5, ctypes.create_string_buffer(umad, 320), 256, 200, 3)
while len(umad := os.read(0, 320)) == 320:
    threading.Thread(target=send, args=(umad,), daemon=True).start()
"""


def umad(method: int, attribute: int, number: int, status: int = 0) -> bytes:
    head = bytearray(HEAD)
    head[4:8] = status.to_bytes(4, sys.byteorder)
    mad = bytearray(MAD)
    mad[0:4] = (1, 0x81, 1, method)
    mad[8:16] = number.to_bytes(8, "big")
    mad[16:18] = attribute.to_bytes(2, "big")
    return bytes(head + mad)


class Manager:
    """A process whose datagrams pass the library, or, without it, go on at once. `sent` is what ibsim would get."""

    def __init__(self, libraries: list[Path]) -> None:
        sent, self._sent_end = os.pipe()
        self._given, given = os.pipe()
        self._sent, self._give = sent, given
        script = f'exec 3>&{self._sent_end} 4<&{self._given}; exec "$@"'
        preload = f"LD_PRELOAD={':'.join(map(str, libraries))}"
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", "env", preload, sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._sent_end, self._given),
        )

    def send(self, one: bytes) -> None:
        self._process.stdin.write(one)
        self._process.stdin.flush()

    def give(self, one: bytes) -> None:
        os.write(self._give, one)

    def sent(self, timeout_s: float = PATIENCE_S) -> bytes | None:
        return self._read(self._sent, HEAD + MAD, timeout_s)

    def received(self, timeout_s: float = PATIENCE_S) -> bytes | None:
        return self._read(self._process.stdout.fileno(), 1 + HEAD + MAD, timeout_s)

    @staticmethod
    def _read(descriptor: int, size: int, timeout_s: float) -> bytes | None:
        if not select.select([descriptor], [], [], timeout_s)[0]:
            return None
        return os.read(descriptor, size)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        for descriptor in (self._sent, self._sent_end, self._given, self._give):
            os.close(descriptor)


def libraries(tmp_path: Path, *, guarded: bool) -> list[Path]:
    texts = source_texts("testbed.lab.features.infiniband", "native")
    fake = compiled("fake-umad", ".so", {"fake.c": FAKE.encode()}, FLAGS, tmp_path, what="a test")
    one = {"manager_mads.c": texts["manager_mads.c"]}
    guard = compiled("manager-mads", ".so", one, FLAGS, tmp_path, what="a test")
    return [guard, fake] if guarded else [fake]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    found = Manager(libraries(tmp_path, guarded=True))
    yield found
    found.close()


def test_without_the_library_a_request_overtakes_the_answer_of_another_manager(tmp_path: Path) -> None:
    """That is what has ibsim drop the answer: it knows the number of the last request alone."""
    manager = Manager(libraries(tmp_path, guarded=False))
    try:
        manager.send(umad(GET, SM_INFO, 1))
        assert manager.sent() == umad(GET, SM_INFO, 1)
        manager.send(umad(GET, NODE_INFO, 2))
        assert manager.sent() == umad(GET, NODE_INFO, 2)
    finally:
        manager.close()


def test_requests_wait_for_the_answer_and_answers_do_not(manager: Manager) -> None:
    for number in (1, 2):
        manager.send(umad(GET, NODE_INFO, number))
        assert manager.sent() == umad(GET, NODE_INFO, number), "several requests may be on their way"
    manager.send(umad(GET, SM_INFO, 3))
    assert manager.sent() == umad(GET, SM_INFO, 3)
    manager.send(umad(GET, NODE_INFO, 4))
    assert manager.sent(SHORT_S) is None
    manager.send(umad(ANSWER, SM_INFO, 99))
    assert manager.sent() == umad(ANSWER, SM_INFO, 99), "the other manager may be waiting for it"
    for other in (umad(ANSWER, NODE_INFO, 1), umad(GET, SM_INFO, 3), umad(ANSWER, SM_INFO, 98)):
        manager.give(other)
        assert manager.received() == bytes([7]) + other
    assert manager.sent(SHORT_S) is None, "none of these is the answer"
    manager.give(umad(ANSWER, SM_INFO, 3 | 5 << 32))
    assert manager.received() == bytes([7]) + umad(ANSWER, SM_INFO, 3 | 5 << 32)
    assert manager.sent() == umad(GET, NODE_INFO, 4)


def test_a_question_that_ibsim_gives_back_is_over(manager: Manager) -> None:
    manager.send(umad(GET, SM_INFO, 1))
    assert manager.sent() is not None
    manager.send(umad(GET, NODE_INFO, 2))
    assert manager.sent(SHORT_S) is None
    manager.give(umad(GET, SM_INFO, 1, status=110))
    assert manager.sent() == umad(GET, NODE_INFO, 2)


def test_a_question_that_nobody_answers_has_failed_after_a_while(manager: Manager) -> None:
    manager.send(umad(GET, SM_INFO, 1))
    assert manager.sent() is not None
    manager.send(umad(GET, NODE_INFO, 2))
    assert manager.received() == bytes([5]) + umad(GET, SM_INFO, 1, status=110)
    assert manager.sent() == umad(GET, NODE_INFO, 2)
