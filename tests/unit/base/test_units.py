"""The spellings of every kind of quantity: what each is read as, and what those are told who wrote something else."""

import re

import pytest

from testbed.base.units import (
    BDPS,
    BYTES,
    COUNT,
    NUMBER,
    PACKETS_A_SECOND,
    PERCENT,
    POINTS,
    RATE,
    ROUND_TRIPS,
    SHARE,
    TIME,
    ByteCount,
    Duration,
    Measure,
    QuantityError,
    Rate,
    measure_of_key,
    parse_bdp,
)

READ: list[tuple[Measure, dict[str, float]]] = [
    (
        RATE,
        dict.fromkeys(
            ("400G", "400Gbps", "400 Gbit/s", "400Gb/s", "400Gb", "400GBit/s", "400gbit", "400g", "400GbE", "400GE"),
            4e11,
        )
        | {"50 GB/s": 4e11, "1e9bps": 1e9, "100_000Mbps": 1e11, "0.5T": 5e11, "2.5M": 2.5e6, "1Kibit/s": 1024}
        | {"10kbit/s": 1e4, "8bps": 8, ".5k": 500, "100mbit": 1e8, "1B/s": 8},
    ),
    (
        TIME,
        dict.fromkeys(("4us", "4 us", "4µs", "4μs", "4usec", "4e-6s", "4000ns", "0.004ms"), 4000)
        | {"1s": 1e9, "2 sec": 2e9, "1min": 6e10, "1m": 6e10, "2h": 7.2e12, "0": 0, "0s": 0},
    ),
    (
        BYTES,
        dict.fromkeys(("64KiB", "64Ki", "64 KiB", "65536B", "65536 bytes"), 65536)
        | {"64k": 64e3, "64kB": 64e3, "64KB": 64e3, "16M": 16e6, "1e6B": 1e6, "1_000B": 1000, "1GiB": 2**30, "0": 0},
    ),
    (SHARE, {"7%": 0.07, "7 %": 0.07, "0.07": 0.07, "1/8": 0.125, "1e-3": 0.001, "10ppm": 1e-5, "7 percent": 0.07}),
    (NUMBER, {"1/8": 0.125, "12.5%": 0.125, "10": 10, "2k": 2000, "989.4T": 989.4e12, "-1": -1}),
    (COUNT, {"8": 8, "1_000": 1000, "1e3": 1000, "10k": 1e4}),
    (PERCENT, {"40": 40, "40%": 40, "2/5%": 0.4}),
    (POINTS, {"8pp": 0.08}),
    (BDPS, {"2bdp": 2, "2 BDP": 2, "2": 2}),
    (ROUND_TRIPS, {"2": 2, "2rtts": 2, "1.5 RTT": 1.5}),
    (PACKETS_A_SECOND, {"50": 50, "50pps": 50, "2k": 2000, "2kpps": 2000}),
    (RATE.counted_in("bps"), {"5M": 5e6, "5e6": 5e6, "5 Mbit/s": 5e6}),
    (RATE.counted_in("B/s"), {"5GB/s": 5e9, "40G": 5e9, "5e9": 5e9}),
    (TIME.counted_in("us"), {"4us": 4, "4": 4, "4000ns": 4, "0.05": 0.05, "1ms": 1000}),
    (BYTES.counted_in("B"), {"64KiB": 65536, "4096": 4096, "9k": 9000}),
]

REFUSED: list[tuple[Measure, str, str, str | None]] = [
    (RATE, "400", "no-unit", "write the unit, such as 400G"),
    (RATE, "1e9", "no-unit", "write the unit, such as 1e9bps"),
    (RATE, "5MB", "bad-quantity", "write 5Mbps for bits; bytes are 5MB/s, which is 40Mbps"),
    (RATE, "50GBps", "bad-quantity", "write 50Gbps for bits; bytes are 50GB/s, which is 400Gbps"),
    (RATE, "7%", "bad-quantity", "for example 400G"),
    (RATE, "1/8", "bad-quantity", None),
    (RATE, "2,5G", "bad-quantity", "a point stands before decimals, and nothing between thousands"),
    (RATE, "fast", "bad-quantity", None),
    (RATE, "9" * 50, "bad-quantity", None),
    (TIME, "5", "no-unit", "write the unit, such as 5ns, 5us, 5ms or 5s"),
    (TIME, "5US", "bad-quantity", "write 5us"),
    (TIME, "5microsec", "bad-quantity", "write 5us"),
    (TIME, "500 Nanosecs", "bad-quantity", "write 500ns"),
    (TIME, "1:30", "bad-quantity", None),
    (TIME, "1m30s", "bad-quantity", "for example 500ns"),
    (BYTES, "5", "no-unit", "write the unit, such as 5MB"),
    (BYTES, "1500000.0", "no-unit", "write the unit, such as 1500000B"),
    (BYTES, "64kbit", "bad-quantity", "a size is in bytes: write 8kB"),
    (BYTES, "64kb", "bad-quantity", "write 64kB, or 64KiB, which counts by 1024"),
    (BYTES, "256m", "bad-quantity", "write 256MB, or 256MiB, which counts by 1024"),
    (BYTES, "10us", "bad-quantity", "for example 16MB"),
    (SHARE, "7‰", "bad-quantity", "for example 7%"),
    (SHARE, "much", "wrong-type", "for example 7%"),
    (SHARE, "1/0", "wrong-type", "for example 7%"),
    (COUNT, "2x", "bad-quantity", "write 2"),
    (NUMBER, "2^-3", "wrong-type", "write 1/8"),
    (NUMBER, "1:8", "wrong-type", "write 1/8"),
    (SHARE, "1:8", "wrong-type", "write 1/8"),
    (COUNT, "1/8", "wrong-type", "for example 8"),
    (COUNT, "1,000", "wrong-type", "a point stands before decimals, and nothing between thousands"),
    (COUNT, "7%", "bad-quantity", "for example 8"),
    (TIME.counted_in("us"), "4MB", "bad-quantity", "for example 500ns"),
]


@pytest.mark.parametrize(
    ("measure", "text", "value"),
    [(measure, text, value) for measure, texts in READ for text, value in texts.items()],
    ids=lambda one: one.noun if isinstance(one, Measure) else None,
)
def test_a_spelling_is_read_and_the_schema_knows_it(measure: Measure, text: str, value: float) -> None:
    assert float(measure.read(text)) == pytest.approx(value, rel=1e-12)
    assert re.search(measure.pattern(), text) or text == "0"


@pytest.mark.parametrize(("measure", "text", "code", "hint"), REFUSED)
def test_another_is_refused_with_what_to_write_and_by_the_schema(
    measure: Measure, text: str, code: str, hint: str | None
) -> None:
    with pytest.raises(QuantityError) as caught:
        measure.read(text)
    assert (caught.value.code, caught.value.hint) == (code, hint)
    assert not re.search(measure.pattern(), text) or len(text) > 40


@pytest.mark.parametrize(("measure", "text", "code", "hint"), [one for one in REFUSED if one[3]])
def test_a_hint_that_rewrites_the_value_can_be_followed(measure: Measure, text: str, code: str, hint: str) -> None:
    written = re.findall(r"(?<![\w.])[0-9]+/[0-9]+|(?<![\w.])[0-9][0-9.e]*[A-Za-z%/]+|(?<=write )[0-9]+$", hint)
    assert all(measure.read(one) >= 0 for one in written)
    assert written or "point" in hint or hint == "for example 8"


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (Rate.parse, "-400G", "a rate cannot be negative"),
        (Duration.parse, "0.1ns", "finer than the smallest unit"),
        (ByteCount.parse, "0.0001kB", "finer than the smallest unit"),
    ],
)
def test_a_quantity_is_a_whole_number_of_base_units_from_zero(parse: type, text: str, words: str) -> None:
    with pytest.raises(QuantityError, match=words):
        parse(text)


def test_the_unit_at_the_end_of_a_key_says_how_its_numbers_are_read() -> None:
    read = {
        ("cc_cnp_us", "4us"): 4,
        ("cc_additive_bps", "5M"): 5e6,
        ("cc_counter_bytes", "10MB"): 1e7,
        ("cc_low_rtts", "1.5rtt"): 1.5,
        ("keep_alive_ms", "5s"): 5000,
        ("requests_per_s", "2k"): 2000,
        ("storm_pps", "2kpps"): 2000,
        ("cc_g", "1/256"): 1 / 256,
    }
    for (key, text), value in read.items():
        assert float(measure_of_key(key, NUMBER).read(text)) == value, key


def test_a_size_may_be_in_bdp() -> None:
    assert [parse_bdp(text) for text in ("64bdp", "0.5 BDP", "64kB", "bdp", "1/2bdp")] == [64, 0.5, None, None, None]
