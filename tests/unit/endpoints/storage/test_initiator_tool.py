"""The words of the initiator's tool."""

import argparse

import pytest

from testbed.endpoints.storage.initiator import main, parse_path, parse_size
from testbed.endpoints.storage.path import Backoff


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("512", 512), ("4K", 4096), ("4MiB", 4 << 20), ("1TB", 1 << 40)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "4k", "-1", "4 M", "1.5M", "M"])
def test_text_that_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size such as 4M"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("10.5.0.1", ("10.5.0.1", 4420)),
        ("10.5.0.1:8009", ("10.5.0.1", 8009)),
        ("[2001:db8::1]", ("2001:db8::1", 4420)),
        ("[2001:db8::1]:1", ("2001:db8::1", 1)),
    ],
)
def test_paths(text: str, path: tuple[str, int]) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["", ":1", "10.5.0.1:", "10.5.0.1:70000", "2001:db8::1", "[x]:1"])
def test_text_that_is_no_path(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no address such as"):
        parse_path(text)


@pytest.mark.parametrize(
    "words", [["read", "--path", "10.5.0.1"], ["read", "--path", "10.5.0.1", "--nqn", "nqn.x", "--depth", "0"]]
)
def test_command_line_that_is_wrong(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2


def test_back_off_doubles_up_to_its_limit() -> None:
    backoff = Backoff(first=100, most=1000)
    assert [backoff.next() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
