"""The congestion control context: what it permits, and what it passes on."""

import pytest

from testbed.endpoints.perftest.options import make_parser as make_tool_parser
from testbed.endpoints.perftest.registry import TOOLS
from testbed.protocols.errors import UsageError
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.congestion import (
    CONTROLLERS,
    DEFAULT_CONTROLLER,
    CongestionWindow,
    Nscc,
    NsccConfig,
    make_context,
)
from testbed.protocols.uet.packets.codes import NackCode

CONFIG = NsccConfig(link_rate_bps=100_000_000_000, base_rtt_ns=12_000, mtu_bytes=1000, trimming=True)


def test_the_factory_makes_what_is_asked_for() -> None:
    for kind, nscc, rccc in (
        ("nscc", True, False),
        ("rccc", False, True),
        ("both", True, True),
        ("none", False, False),
    ):
        context = make_context(kind, CONFIG, now=0)
        assert (isinstance(context.window, Nscc), context.rccc_enabled) == (nscc, rccc)
        assert context.can_send()


@pytest.mark.parametrize("kind", CONTROLLERS)
def test_every_kind_counts_what_is_in_flight(kind: str) -> None:
    context = make_context(kind, CONFIG, now=0)
    for _ in range(10):
        context.on_send(0, 1000)
    context.on_ack(100, 4000, False, -1)
    context.on_nack(200, NackCode.TRIMMED, 1000, -1)
    context.on_inferred_loss(300, 1000)
    context.on_timeout(400, 1000)
    assert context.inflight_bytes == 3000
    if context.window is not None:
        assert context.window.inflight == 3000


@pytest.mark.parametrize("kind", CONTROLLERS)
def test_every_kind_counts_what_it_sends_and_keeps_round_trips(kind: str) -> None:
    context = make_context(kind, CONFIG, now=0)
    for _ in range(4):
        context.on_send(0, 1000)
    for rtt_ns in (15_000, -1, 13_000, 14_000):
        context.on_ack(100, 1000, False, rtt_ns)
    assert (context.sends, context.latest_rtt_ns, context.least_rtt_ns) == (4, 14_000, 13_000)


def test_what_both_permit_may_be_sent() -> None:
    context = make_context("both", CONFIG, now=0)
    context.window.window_bytes = 1500
    context.on_send(0, 1000)
    assert context.credit.can_send()
    assert not context.can_send()  # the window is full
    context.on_credit(10, 4)
    context.on_ack(10, 1000, False, -1)
    assert context.can_send()
    context.on_send(20, 1024)
    context.window.window_bytes = 100_000
    assert not context.can_send()  # the credit is spent


def test_rccc_alone_is_bound_by_credit() -> None:
    context = make_context("rccc", CONFIG, now=0)
    assert context.cwnd_bytes == 225_000
    for _ in range(225):
        context.on_send(0, 1000)
    assert not context.can_send()
    assert context.ack_request()
    context.on_credit(10, 8)
    assert context.can_send()
    assert context.cwnd_bytes == context.max_wnd_bytes == 227_048


@pytest.mark.parametrize("event", ["ack", "nack", "credit"])
def test_any_feedback_ends_speculation(event: str) -> None:
    context = make_context("rccc", CONFIG, now=0)
    if event == "ack":
        context.on_ack(10, 0, False, -1)
    elif event == "nack":
        context.on_nack(10, NackCode.NO_BITMAP, 1000, -1)
    else:
        context.on_credit(10, 0)
    assert not context.can_send()


def test_acks_are_asked_for_when_the_window_is_full() -> None:
    context = make_context("nscc", CONFIG, now=0)
    context.on_send(0, 1000)
    assert not context.ack_request()
    for _ in range(224):
        context.on_send(0, 1000)
    assert context.ack_request()


def test_a_last_hop_trim_shrinks_the_window_only_without_rccc() -> None:
    windows = []
    for kind in ("nscc", "both"):
        context = make_context(kind, CONFIG, now=0)
        context.on_send(0, 1000)
        context.on_nack(100, NackCode.TRIMMED_LASTHOP, 1000, -1)
        windows.append(context.cwnd_bytes)
    assert windows == [224_000, 225_000]


def test_the_credit_target_follows_the_demand() -> None:
    context = make_context("both", CONFIG, now=0)
    context.on_ack(0, 0, False, -1)
    context.on_demand(10_000, 240)
    assert context.credit_target() == 40
    context.window.window_bytes = 4120
    assert context.credit_target() == 20
    assert make_context("nscc", CONFIG, now=0).credit_target() == 0


def test_credit_is_asked_for_only_if_something_waits() -> None:
    context = make_context("rccc", CONFIG, now=0)
    context.on_ack(0, 0, False, -1)
    assert context.next_credit_request_time() is None
    context.on_demand(0, 500)
    assert context.next_credit_request_time() == 60_000
    context.on_timeout(30_000, 500)
    assert context.next_credit_request_time() == 30_000
    context.on_credit_request(30_000)
    assert context.next_credit_request_time() == 90_000


def test_events_of_an_absent_algorithm_are_harmless() -> None:
    context = make_context("nscc", CONFIG, now=0)
    context.on_credit(0, 77)
    context.on_credit_request(0)
    assert context.next_credit_request_time() is None
    assert context.can_send()


def test_without_congestion_control_nothing_moves_the_window() -> None:
    context = make_context("none", CONFIG, now=0)
    assert type(context.window) is CongestionWindow
    for _ in range(224):
        context.on_send(0, 1000)
    assert context.can_send()
    assert not context.ack_request()
    context.on_send(0, 1000)
    assert not context.can_send()
    assert context.ack_request()
    for _ in range(100):
        context.on_nack(0, NackCode.TRIMMED, 1000, 20_000)
    assert context.cwnd_bytes == context.max_wnd_bytes == 225_000


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_is_registered_under_its_name_and_says_what_it_is(name: str) -> None:
    controller = CONTROLLERS[name]
    assert controller.name == name
    assert controller.description
    assert make_context(name, CONFIG, now=0).rccc_enabled == controller.grants_credit


def test_command_lines_and_settings_take_their_words_from_the_registry() -> None:
    tool = next(iter(TOOLS.values()))
    option = next(action for action in make_tool_parser(tool)._actions if "--cc" in action.option_strings)
    assert list(option.choices or ()) == list(CONTROLLERS)
    assert option.default == DEFAULT_CONTROLLER == UetConfig().cc
    with pytest.raises(UsageError, match=", ".join(CONTROLLERS)):
        UetConfig(cc="cubic")
