"""iperf3's reports, from captured output of iperf 3.12."""

from pathlib import Path

import pytest

from testbed.run.programs.iperf3 import Iperf3Error, parse_client_report

DATA = Path(__file__).parents[3] / "data" / "iperf3"


def test_timed_flow_counts_what_the_receiver_got_over_its_own_clock() -> None:
    report = parse_client_report((DATA / "timed.json").read_bytes())
    assert report.mss_bytes == 4448
    assert report.received_bytes == 11996256
    assert report.received_s == pytest.approx(1.028741)
    assert len(report.intervals) == 4, "those of the warm-up are left out"
    sized = parse_client_report((DATA / "sized.json").read_bytes())
    assert sized.received_bytes == 3745216
    assert sized.received_s == pytest.approx(0.304353)


def test_interrupted_client_keeps_what_it_sent() -> None:
    report = parse_client_report((DATA / "interrupted.json").read_bytes(), interrupted=True)
    assert report.received_bytes is None
    assert report.sent_bytes == 18743872


def test_interruption_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(Iperf3Error, match="interrupt - the client has terminated"):
        parse_client_report((DATA / "interrupted.json").read_bytes())


def test_iperf3s_own_error_is_passed_on() -> None:
    with pytest.raises(Iperf3Error, match=r"^unable to connect to server: Connection refused$"):
        parse_client_report((DATA / "refused.json").read_bytes())


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"", "printed no JSON: nothing"),
        (b"Usage: iperf3 [-s|-c host]", "printed no JSON: Usage"),
        (b"[1, 2]", "not its report"),
        (b'{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {}}', "lacks 'sum_sent'"),
        (b"[" * 100_000, "printed no JSON"),
    ],
)
def test_what_is_not_a_report(output: bytes, message: str) -> None:
    with pytest.raises(Iperf3Error, match=message.replace("[", r"\[")):
        parse_client_report(output)
