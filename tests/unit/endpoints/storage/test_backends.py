"""Where the bytes of a namespace are: the same contract for each backend that takes writes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.endpoints.storage.backends import Backend, FileBackend, MediaError, MemoryBackend, PatternBackend
from testbed.endpoints.storage.pattern import Pattern
from testbed.protocols.nvme.codes import Status

SIZE = 1 << 20


@pytest.fixture(params=["memory", "file"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    found = MemoryBackend(SIZE) if request.param == "memory" else FileBackend(tmp_path / "file", SIZE)
    yield found
    found.close()


def write(backend: Backend, offset: int, data: bytes) -> None:
    place = backend.place(offset, len(data))
    place[:] = data
    backend.write(offset, place)


def test_what_is_written_is_read(backend: Backend) -> None:
    assert bytes(backend.read(0, SIZE)) == bytes(SIZE)
    write(backend, 4096, b"abcd" * 1024)
    write(backend, SIZE - 512, b"z" * 512)
    backend.flush()
    assert bytes(backend.read(4096 - 512, 5120)) == bytes(512) + b"abcd" * 1024 + bytes(512)
    assert bytes(backend.read(SIZE - 512, 512)) == b"z" * 512


@pytest.mark.parametrize(("offset", "length"), [(0, SIZE), (512, 512), (512, 8192), (4096, 4096), (3584, 20_480)])
def test_zeroes(backend: Backend, offset: int, length: int) -> None:
    write(backend, 0, b"x" * SIZE)
    backend.zero(offset, length)
    expected = bytearray(b"x" * SIZE)
    expected[offset : offset + length] = bytes(length)
    assert bytes(backend.read(0, SIZE)) == expected


def test_file_is_sparse_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    first = FileBackend(path, 1 << 30)
    write(first, 1 << 29, b"k" * 4096)
    first.close()
    assert path.stat().st_size == 1 << 30 and path.stat().st_blocks * 512 < SIZE
    assert path.stat().st_mode & 0o777 == 0o600
    again = FileBackend(path, 1 << 30)
    assert bytes(again.read(1 << 29, 4096)) == b"k" * 4096
    os.truncate(path, 4096)
    with pytest.raises(MediaError) as caught:
        again.read(8192, 4096)
    assert caught.value.status is Status.UNRECOVERED_READ_ERROR
    again.close()


def test_pattern_has_any_size_and_takes_no_writes() -> None:
    backend = PatternBackend(1 << 50, 7)
    offset = (1 << 49) + 12_288
    assert Pattern(7).differences(backend.read(offset, SIZE), offset) == []
    for change in (lambda: write(backend, 0, bytes(4096)), lambda: backend.zero(0, 4096)):
        with pytest.raises(MediaError) as caught:
            change()
        assert caught.value.status is Status.NAMESPACE_IS_WRITE_PROTECTED
