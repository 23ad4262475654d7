"""Options of the measuring tools: what they mean, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.agent.perftest.errors import MismatchError
from testbed.agent.perftest.exchange import check_hello, hello, source_address
from testbed.agent.perftest.options import ALL_SIZES, TOOLS, Options, parse_options
from testbed.transport.uet.packets.codes import Mode

KEY = "00112233445566778899aabbccddeeff" * 2


def options(text: str = "", tool: str = "write_bw") -> Options:
    return parse_options(TOOLS[tool], text.split())


def test_defaults_are_perftests() -> None:
    given = options()
    assert given.server and given.port == 18515
    assert (given.sizes, given.iterations, given.tx_depth, given.pdcs) == ((65536,), 1000, 128, 1)
    assert options(tool="send_lat").sizes == (2,)
    assert options(tool="atomic_lat").sizes == (8,)
    assert given.mode is Mode.RUD and not given.gbits and given.json_file is None


def test_all_options() -> None:
    given = options(
        "10.0.0.2 -p 5 -i 10.0.0.1 -s 4k -n 7 -q 2 -b -t 9 --report_gbits --out_json -F -e --timeout 2.5 --mode rod "
        "--cc rccc --paths single --mtu 1024 --rate 500M --base-rtt 100us --trimming"
    )
    assert (given.host, given.port, given.address) == ("10.0.0.2", 5, "10.0.0.1")
    assert (given.sizes, given.iterations, given.pdcs, given.tx_depth) == ((4096,), 7, 2, 9)
    assert given.bidirectional and given.gbits and given.events and given.trimming
    assert given.json_file == Path("perftest_out.json")
    assert (given.mode, given.cc, given.paths, given.payload_bytes) == (Mode.ROD, "rccc", "single", 1024)
    assert (given.link_rate_bps, given.base_rtt_ns, given.timeout_ns) == (500_000_000, 100_000, 2_500_000_000)


def test_other_ways_to_say_it() -> None:
    assert options("--address 10.0.0.1").address == options("--bind-source-ip 10.0.0.1").address == "10.0.0.1"
    assert options("-a").sizes == ALL_SIZES == tuple(2**power for power in range(1, 24))
    assert options("-D 1.5").duration_s == 1.5
    assert options("-s 1M").sizes == (1 << 20,)


@pytest.mark.parametrize(
    ("tool", "text", "words"),
    [
        ("send_bw", "--mode rudi", "--mode rudi is for idempotent operations, and send is none"),
        ("atomic_lat", "--mode rudi", "and atomic is none"),
        ("write_bw", "--mode rudi -q 2", "-q does not apply"),
        ("atomic_lat", "-s 4", "an atomic operation has 8 bytes"),
        ("write_bw", "-s 0", "-s must be 1 to"),
        ("write_bw", "-s 1x", "'1x' is no number of bytes"),
        ("write_bw", "-n none", "'none' is not a number from 1 to"),
        ("write_bw", "-n 0", "'0' is not a number from 1 to"),
        ("write_bw", "-D 0", "'0' is not a number of seconds"),
        ("write_bw", "-a -D 1", "-a and -D exclude each other"),
        ("write_bw", "-p 65536", "is not a number from 1 to 65535"),
        ("write_bw", "--rate fast", "'fast' is no rate"),
        ("write_bw", "--base-rtt 5", "'5' is no time"),
        ("write_bw", "--mode uud", "invalid choice: 'uud'"),
        ("write_bw", "-m 16384", "is not a number from 64 to 16383"),
        ("send_lat", "-b", "unrecognized arguments: -b"),
        ("write_bw", "--tss /nowhere/key", "cannot read /nowhere/key"),
    ],
)
def test_wrong_options_are_refused_with_exit_code_2(
    tool: str, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        options(text, tool)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"zz" * 32, b"00" * 31, b"00" * 32, bytes(range(200, 232))])
def test_a_file_that_holds_no_key(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(SystemExit):
        options(f"--tss {path}")
    assert "domain key" in capsys.readouterr().err


def test_keys_never_show(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(KEY)
    given = options(f"--tss {path}")
    said = repr(given) + repr(hello(given, "10.0.0.1", 1, 2))
    assert KEY[:8] not in said and bytes.fromhex(KEY)[:4].hex() not in said


def test_equal_options_meet() -> None:
    check_hello(hello(options("-n 5"), "10.0.0.1", 1, 2), options("-n 5 10.0.0.1 --report_gbits"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-s 1", "differ in -s/-a: [65536] here, [1] there"),
        ("-n 5", "differ in -n: 1000 here, 5 there"),
        ("-D 2", "differ in -n: 1000 here, 0 there"),
        ("-q 2", "differ in -q"),
        ("-b", "differ in -b"),
        ("--mode rod", "differ in --mode: 'rud' here, 'rod' there"),
        ("--cc none", "differ in --cc"),
        ("-m 1000", "differ in --mtu"),
    ],
)
def test_what_differs_is_named(text: str, words: str) -> None:
    with pytest.raises(MismatchError) as problem:
        check_hello(hello(options(text), "10.0.0.1", 1, 2), options())
    assert words in str(problem.value)


def test_other_tools_versions_and_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="uet_write_bw here, uet_read_bw there"):
        check_hello(hello(options(tool="read_bw"), "10.0.0.1", 1, 2), options())
    theirs = hello(options(), "10.0.0.1", 1, 2)
    with pytest.raises(MismatchError, match="version 99 of the exchange there, 1 here"):
        check_hello({**theirs, "version": 99}, options())
    with pytest.raises(MismatchError, match="lacks address, job or key"):
        check_hello({**theirs, "address": 3}, options())
    with pytest.raises(MismatchError, match="differ in -s/-a"):
        check_hello({**theirs, "options": None}, options())
    path = tmp_path / "key"
    path.write_text(KEY)
    with pytest.raises(MismatchError, match="differ in --tss: one has no key, or another"):
        check_hello(theirs, options(f"--tss {path}"))


def test_a_host_that_measures_against_itself_has_two_addresses() -> None:
    assert source_address("127.0.0.1", 18515) == ("127.0.0.2", "127.0.0.1")
    assert source_address("127.0.0.9", 18515) == ("127.0.0.1", "127.0.0.9")
