"""Forwarded connections pass bytes both ways, however many of them there are."""

import fcntl
import resource
import socket
import threading
from collections.abc import Iterator

import pytest

from testbed.vm.remote.ssh import exchange_with

pytestmark = pytest.mark.process
BEYOND_SELECT = 1100


@pytest.fixture
def far_descriptor() -> Iterator[int]:
    """The least number that a descriptor has that select(2) does not know."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] <= BEYOND_SELECT:
        pytest.skip("this process may not have so many descriptors")
    if limits[0] != resource.RLIM_INFINITY and limits[0] <= BEYOND_SELECT:
        resource.setrlimit(resource.RLIMIT_NOFILE, (BEYOND_SELECT + 1, limits[1]))
    yield BEYOND_SELECT
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_connection_whose_descriptor_is_beyond_those_of_select_is_passed_on(far_descriptor: int) -> None:
    there, near = socket.socketpair()
    channel = socket.socket(fileno=fcntl.fcntl(near.fileno(), fcntl.F_DUPFD_CLOEXEC, far_descriptor))
    near.close()
    with socket.create_server(("127.0.0.1", 0)) as listener, there:
        passing = threading.Thread(target=exchange_with, args=(channel, listener.getsockname()[1]), daemon=True)
        passing.start()
        here, _ = listener.accept()
        with here:
            there.sendall(b"to here")
            assert here.recv(64) == b"to here"
            here.sendall(b"to there")
            assert there.recv(64) == b"to there"
        passing.join(20)
        assert not passing.is_alive() and there.recv(64) == b"", "either end closes both"
