"""Options of the measuring tools: what they mean, and what is refused with which words."""

import re
import tomllib
from pathlib import Path

import pytest

from testbed.endpoints.perftest import main
from testbed.endpoints.perftest.errors import MismatchError
from testbed.endpoints.perftest.exchange import check_hello, hello, source_address
from testbed.endpoints.perftest.options import ALL_SIZES, Options, parse_options
from testbed.endpoints.perftest.registry import TOOLS, TRANSPORTS
from testbed.endpoints.perftest.transports.roce import RoceOptions
from testbed.endpoints.perftest.transports.uet import UetOptions
from testbed.protocols.uet.packets.codes import Mode

CHECKOUT = Path(__file__).parents[4]
END = {"job": 1, "key": "2"}
KEY = "00112233445566778899aabbccddeeff" * 2


def options(text: str = "", tool: str = "uet_write_bw") -> Options:
    return parse_options(TOOLS[tool], text.split())


def uet(given: Options) -> UetOptions:
    assert isinstance(given.transport, UetOptions)
    return given.transport


def roce(given: Options) -> RoceOptions:
    assert isinstance(given.transport, RoceOptions)
    return given.transport


@pytest.mark.parametrize("prefix", [transport.prefix for transport in TRANSPORTS])
def test_every_transport_has_its_tools(prefix: str) -> None:
    verbs = {"write_bw", "read_bw", "send_bw", "send_lat", "write_lat", "atomic_lat"}
    if prefix == "su":
        verbs = {"write_bw", "read_bw", "copy_bw", "read_lat", "atomic_lat"}
    assert {name for name in TOOLS if name.startswith(f"{prefix}_")} == {f"{prefix}_{verb}" for verb in verbs}


def test_the_package_and_the_image_of_hosts_install_every_tool() -> None:
    scripts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {name for name, entry in scripts.items() if entry == "testbed.endpoints.perftest:main"} == set(TOOLS)
    dockerfile = (CHECKOUT / "images/host/Dockerfile").read_text()
    verbs, transports, of_gpus = (words.split() for words in re.findall(r"for \w+ in ([^;]+);", dockerfile))
    assert {f"{transport}_{verb}" for transport in transports for verb in verbs} | set(of_gpus) == set(TOOLS)


def test_the_name_of_a_program_says_which_tool_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/roce_send_lat", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert "usage: roce_send_lat" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/ib_send_lat"])
    assert main() == 2


def test_defaults_are_perftests() -> None:
    given = options()
    assert given.server and given.port == 18515
    assert (given.sizes, given.iterations, given.tx_depth, given.queues) == ((65536,), 1000, 128, 1)
    assert options(tool="uet_send_lat").sizes == (2,)
    assert options(tool="uet_atomic_lat").sizes == (8,)
    assert uet(given).mode is Mode.RUD and not given.gbits and given.json_file is None


def test_all_options() -> None:
    given = options(
        "10.0.0.2 -p 5 -i 10.0.0.1 -s 4k -n 7 -q 2 -b -t 9 --report_gbits --out_json -F -e --timeout 2.5 --mode rod "
        "--cc rccc --paths single --mtu 1024 --rate 500M --base-rtt 100us --trimming"
    )
    assert (given.host, given.port, given.address) == ("10.0.0.2", 5, "10.0.0.1")
    assert (given.sizes, given.iterations, given.queues, given.tx_depth) == ((4096,), 7, 2, 9)
    assert given.bidirectional and given.gbits and given.events and uet(given).config.trimming
    assert given.json_file == Path("perftest_out.json")
    assert (uet(given).mode, given.cc, uet(given).config.paths) == (Mode.ROD, "rccc", "single")
    assert given.payload_bytes == uet(given).config.payload_bytes == 1024
    assert (given.link_rate_bps, given.base_rtt_ns, given.timeout_ns) == (500_000_000, 100_000, 2_500_000_000)


def test_the_options_of_roce() -> None:
    usual = roce(options(tool="roce_write_bw"))
    assert (usual.config.mtu, usual.config.timeout, usual.config.retry_count) == (4096, 14, 7)
    assert (usual.config.cc, usual.config.recovery, usual.config.ooo) == ("dcqcn", "go-back-n", False)
    assert (usual.dscp, usual.notification_dscp) == (26, 48)
    given = options(
        "-m 1024 -q 3 -o 4 -u 10 --parameters nvidia --recovery selective --ooo --tclass 98 --cnp-dscp 40 "
        "--time-scale 200 --rate 500M --base-rtt 100us -x 3 -c RC 10.0.0.2",
        "roce_read_bw",
    )
    config = roce(given).config
    assert (given.queues, given.payload_bytes, config.mtu, config.most_reads, config.timeout) == (3, 1024, 1024, 4, 10)
    assert (config.parameters, config.recovery, config.ooo, config.time_scale) == ("nvidia", "selective", True, 200)
    assert (config.link_rate_bps, config.base_rtt_ns) == (500_000_000, 100_000)
    assert (roce(given).dscp, roce(given).notification_dscp) == (24, 40)


def test_a_queue_pair_takes_as_many_requests_as_the_tx_depth_allows() -> None:
    assert roce(options("-t 16384", "roce_send_bw")).config.most_posted == 2 * 16384


def test_other_ways_to_say_it() -> None:
    assert options("--address 10.0.0.1").address == options("--bind-source-ip 10.0.0.1").address == "10.0.0.1"
    assert options("-a").sizes == ALL_SIZES == tuple(2**power for power in range(1, 24))
    assert options("-D 1.5").duration_s == 1.5
    assert options("-s 1M").sizes == (1 << 20,)


@pytest.mark.parametrize(
    ("tool", "text", "words"),
    [
        ("uet_send_bw", "--mode rudi", "--mode rudi is for idempotent operations, and send is none"),
        ("uet_atomic_lat", "--mode rudi", "and atomic is none"),
        ("uet_write_bw", "--mode rudi -q 2", "-q does not apply"),
        ("uet_atomic_lat", "-s 4", "an atomic operation has 8 bytes"),
        ("uet_write_bw", "-s 0", "-s must be 1 to"),
        ("uet_write_bw", "-s 1x", "'1x' is no number of bytes"),
        ("uet_write_bw", "-n none", "'none' is not a number from 1 to"),
        ("uet_write_bw", "-n 0", "'0' is not a number from 1 to"),
        ("uet_write_bw", "-D 0", "'0' is not a number of seconds"),
        ("uet_write_bw", "-a -D 1", "-a and -D exclude each other"),
        ("uet_write_bw", "-p 65536", "is not a number from 1 to 65535"),
        ("uet_write_bw", "--rate fast", "'fast' is no rate"),
        ("uet_write_bw", "--base-rtt 5", "'5' is no time"),
        ("uet_write_bw", "--mode uud", "invalid choice: 'uud'"),
        ("uet_write_bw", "-m 16384", "is not a number from 64 to 16383"),
        ("uet_send_lat", "-b", "unrecognized arguments: -b"),
        ("uet_write_bw", "--tss /nowhere/key", "cannot read /nowhere/key"),
        ("uet_write_bw", "--base-rtt 0ns", "base_rtt_ns"),
        ("roce_write_bw", "-m 1500", "invalid choice: 1500 (choose from 256, 512, 1024, 2048, 4096)"),
        ("roce_write_bw", "-u 32", "is not a number from 0 to 31"),
        ("roce_write_bw", "-o 4", "unrecognized arguments: -o"),
        ("roce_write_bw", "-c UD", "invalid choice: 'UD'"),
        ("roce_write_bw", "--cc timely --parameters nvidia", "parameters 'nvidia' of timely are none of"),
        ("roce_write_bw", "--cc none --parameters paper", "congestion control 'none' has no parameters"),
        ("roce_write_bw", "--recovery sometimes", "invalid choice: 'sometimes'"),
        ("roce_write_bw", "--tclass 256", "is not a number from 0 to 255"),
        ("roce_write_bw", "--time-scale 0.5", "is not a time scale of 1 or more"),
        ("roce_write_bw", "-d mlx5_0", "-d: an RNIC is an address of this host: -i"),
        ("roce_write_bw", "-R 10.0.0.1", "-R: queue pairs are connected over the tool's own TCP connection"),
        ("roce_write_bw", "--sl 3", "--sl: nothing here tells packets apart by a service level"),
        ("roce_send_lat", "-q 2", "-q: a latency tool has one queue pair"),
        ("roce_atomic_lat", "-s 4", "an atomic operation has 8 bytes"),
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
    said = repr(given) + repr(hello(given, "10.0.0.1", END))
    assert KEY[:8] not in said and bytes.fromhex(KEY)[:4].hex() not in said


def test_equal_options_meet() -> None:
    check_hello(hello(options("-n 5"), "10.0.0.1", END), options("-n 5 10.0.0.1 --report_gbits"))


@pytest.mark.parametrize(
    ("tool", "text", "here", "words"),
    [
        ("uet_write_bw", "-s 1", "", "differ in -s/-a: [65536] here, [1] there"),
        ("uet_write_bw", "-n 5", "", "differ in -n: 1000 here, 5 there"),
        ("uet_write_bw", "-D 2", "", "differ in -n: 1000 here, 0 there"),
        ("uet_write_bw", "-q 2", "", "differ in -q"),
        ("uet_write_bw", "-b", "", "differ in -b"),
        ("uet_write_bw", "--mode rod", "", "differ in --mode: 'rud' here, 'rod' there"),
        ("uet_write_bw", "--cc none", "", "differ in --cc"),
        ("uet_write_bw", "-m 1000", "", "differ in --mtu"),
        ("roce_write_bw", "-m 1024", "-u 9 --tclass 0", "differ in --mtu: 4096 here, 1024 there"),
        ("roce_write_bw", "--ooo", "", "differ in --ooo"),
        ("roce_write_bw", "--recovery selective", "", "differ in --recovery: 'go-back-n' here, 'selective' there"),
        ("roce_write_bw", "--parameters nvidia", "", "differ in --parameters"),
        ("roce_write_bw", "--time-scale 2", "", "differ in --time-scale"),
    ],
)
def test_what_differs_is_named(tool: str, text: str, here: str, words: str) -> None:
    with pytest.raises(MismatchError) as problem:
        check_hello(hello(options(text, tool), "10.0.0.1", END), options(here, tool))
    assert words in str(problem.value)


def test_other_tools_versions_and_keys_are_refused(tmp_path: Path) -> None:
    for other in ("uet_read_bw", "roce_write_bw"):
        with pytest.raises(MismatchError, match=f"uet_write_bw here, {other} there"):
            check_hello(hello(options(tool=other), "10.0.0.1", END), options())
    theirs = hello(options(), "10.0.0.1", END)
    with pytest.raises(MismatchError, match="version 99 of the exchange there, 2 here"):
        check_hello({**theirs, "version": 99}, options())
    for name in ("address", "endpoint"):
        with pytest.raises(MismatchError, match=f"lacks {name}"):
            check_hello({**theirs, name: 3}, options())
    with pytest.raises(MismatchError, match="differ in -s/-a"):
        check_hello({**theirs, "options": None}, options())
    path = tmp_path / "key"
    path.write_text(KEY)
    with pytest.raises(MismatchError, match="differ in --tss: one has no key, or another"):
        check_hello(theirs, options(f"--tss {path}"))


def test_a_host_that_measures_against_itself_has_two_addresses() -> None:
    assert source_address("127.0.0.1", 18515) == ("127.0.0.2", "127.0.0.1")
    assert source_address("127.0.0.9", 18515) == ("127.0.0.1", "127.0.0.9")
