"""Waiting for a descriptor whose number is beyond what `select` takes."""

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from testbed.base.descriptors import wait_readable, wait_writable

BEYOND_SELECT = 1024


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe, both numbered beyond what `select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = BEYOND_SELECT + 512
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"at most {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    low = os.pipe()
    ends = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, BEYOND_SELECT) for end in low)
    for end in low:
        os.close(end)
    yield ends[0], ends[1]
    for end in ends:
        os.close(end)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_written_is_awaited(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    assert not wait_readable(reader, 0)
    os.write(writer, b"x")
    assert wait_readable(reader)
    assert wait_readable(reader, 5)


def test_a_time_that_is_over_waits_for_nothing(pipe: tuple[int, int]) -> None:
    assert not wait_readable(pipe[0], -1)


def test_a_full_pipe_is_not_writable(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    assert wait_writable(writer, 0)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, bytes(65536))
    assert not wait_writable(writer, 0)
    os.read(reader, 1 << 20)
    assert wait_writable(writer)
