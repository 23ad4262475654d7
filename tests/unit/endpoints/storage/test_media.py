"""How long a medium takes: rate, latency and depth, alone and together."""

import pytest

from testbed.endpoints.storage.media import Media, MediaConfig

MS = 1_000_000
S = 1000 * MS


def finishes(config: MediaConfig, lengths: list[int], interval: int = 0) -> list[int]:
    media = Media(config)
    return [media.submit(length, index * interval) // MS for index, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("config", "interval_ms", "expected"),
    [
        (MediaConfig(), 0, [0, 0, 0, 0]),
        (MediaConfig(rate=1_000_000), 0, [10, 20, 30, 40]),
        (MediaConfig(rate=1_000_000), 100, [10, 110, 210, 310]),  # a pause gives no credit
        (MediaConfig(latency_us=5000), 0, [5, 5, 5, 5]),
        (MediaConfig(latency_us=5000, depth=1), 0, [5, 10, 15, 20]),
        (MediaConfig(latency_us=5000, depth=2), 0, [5, 5, 10, 10]),
        (MediaConfig(latency_us=5000, depth=2), 5, [5, 10, 15, 20]),
        (MediaConfig(rate=1_000_000, latency_us=5000, depth=8), 0, [15, 25, 35, 45]),
        (MediaConfig(rate=1_000_000, latency_us=5000, depth=1), 0, [15, 30, 45, 60]),
    ],
)
def test_commands_of_10_000_bytes(config: MediaConfig, interval_ms: int, expected: list[int]) -> None:
    assert finishes(config, [10_000] * 4, interval_ms * MS) == expected


def test_rate_holds_over_any_mix() -> None:
    media = Media(MediaConfig(rate=50_000_000, latency_us=100, depth=4))
    lengths = [4096, 1 << 20, 0, 65_536] * 200
    assert media.submit(0, 0) < MS
    end = max(media.submit(length, 0) for length in lengths)
    assert sum(lengths) / (end / S) == pytest.approx(50_000_000, rel=0.02)
