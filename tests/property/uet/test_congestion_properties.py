"""Whatever happens: windows stay within bounds, credit is neither lost nor invented, selectors give what they have."""

import math
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.protocols.uet.congestion import CONTROLLERS, CreditScheduler, CreditSource, Nscc, NsccConfig, make_context
from testbed.protocols.uet.congestion.grant_share import LEAST_SHARE, GrantShare
from testbed.protocols.uet.packets.codes import NackCode
from testbed.protocols.uet.paths import PathFeedback, PathKind, make_paths

configs = st.builds(
    NsccConfig,
    link_rate_bps=st.integers(1_000_000, 800_000_000_000),
    base_rtt_ns=st.integers(1000, 100_000_000),
    mtu_bytes=st.integers(100, 9300),
    trimming=st.booleans(),
    time_scale=st.none() | st.integers(1, 10_000),
)
rtts = st.just(-1) | st.integers(0, 1_000_000_000)
events = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 30)),
    st.tuples(st.just("ack"), st.integers(0, 1_000_000), st.booleans(), rtts),
    st.tuples(st.just("nack"), st.sampled_from(NackCode), st.integers(1, 9300), rtts),
    st.tuples(st.just("loss"), st.integers(1, 9300)),
    st.tuples(st.just("timeout"), st.integers(1, 9300)),
    st.tuples(st.just("credit"), st.integers(0, 0xFFFFFF)),
    st.tuples(st.just("demand"), st.integers(0, 10**7), st.integers(0, 10**6)),
)


@settings(deadline=None, max_examples=150)
@given(
    configs,
    st.sampled_from(list(CONTROLLERS)),
    st.integers(0, 10**18),
    st.lists(st.tuples(st.integers(0, 10**8), events), max_size=60),
)
def test_windows_stay_within_bounds(
    config: NsccConfig, kind: str, now: int, course: list[tuple[int, tuple[object, ...]]]
) -> None:
    context = make_context(kind, config, now)
    for pause, (name, *arguments) in course:
        now += pause
        match name, arguments:
            case "send", [int(count)]:
                for _ in range(count):
                    if context.can_send():
                        context.on_send(now, config.mtu_bytes)
                        context.ack_request()
            case "ack", [int(size), bool(marked), int(rtt)]:
                context.on_ack(now, size, marked, rtt)
            case "nack", [NackCode() as code, int(size), int(rtt)]:
                context.on_nack(now, code, size, rtt)
            case "loss", [int(size)]:
                context.on_inferred_loss(now, size)
            case "timeout", [int(size)]:
                context.on_timeout(now, size)
            case "credit", [int(counter)]:
                context.on_credit(now, counter)
            case "demand", [int(backlog), int(again)]:
                context.on_demand(backlog, again)
            case other:
                raise AssertionError(other)
        assert math.isfinite(context.cwnd_bytes)
        assert 0 <= context.credit_target() <= 0xFFFFFF
        if context.window is not None:
            assert config.mtu_bytes <= context.cwnd_bytes <= context.max_wnd_bytes <= config.max_wnd_bytes
            assert context.window.inflight == context.inflight_bytes
        if isinstance(context.window, Nscc):
            assert math.isfinite(context.window.avg_delay)
            assert context.window.avg_delay >= 0
        if context.credit is not None:
            assert context.credit.credit <= config.max_wnd_bytes


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(0, 0.5), st.booleans())
def test_all_is_sent_although_credit_is_lost(seed: int, packets: list[int], loss: float, slow_pull: bool) -> None:
    """Sources and a destination that lose CREDIT and data headers: requests repair it, and no source is forgotten."""
    mtu, max_wnd, rtt = 1000, 8000, 10_000
    random = Random(seed)
    scheduler = CreditScheduler(8_000_000_000, mtu, max_wnd, slow_pull)
    sources = [CreditSource(max_wnd, mtu, rtt, 0) for _ in packets]
    left = list(packets)
    sent = 0
    for now in range(0, 100_000_000, 1000):
        for index, source in enumerate(sources):
            if left[index] == 0:
                continue
            if source.can_send():
                target = source.credit_target(left[index] * mtu, 0, None)
                source.on_send(mtu)
                left[index] -= 1
                sent += mtu
                if random.random() >= loss:
                    scheduler.on_target(index, target, now)
            else:
                due = source.next_request_time()
                assert due is not None
                if now >= due:
                    source.on_request(now)
                    if random.random() >= loss:
                        scheduler.on_request(index, source.credit_target(left[index] * mtu, 0, None), now)
        for key, counter in scheduler.grant(now):
            assert isinstance(key, int)
            if random.random() >= loss:
                sources[key].on_credit(now, counter)
        if not any(left):
            break
    assert not any(left)
    assert sent == sum(packets) * mtu


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000), st.integers(0, 5000)), max_size=60))
def test_grants_never_exceed_targets_nor_the_rate(course: list[tuple[int, int, int]]) -> None:
    scheduler = CreditScheduler(8_000_000_000, 1000, 8000, slow_pull=False)
    targets = [0, 0, 0, 0]
    now = 0
    for sender, target, pause in course:
        now += pause
        scheduler.on_target(sender, target, now)
        targets[sender] = max(targets[sender], target)
        for key, counter in scheduler.grant(now):
            assert isinstance(key, int)
            assert counter <= targets[key]
        granted = [scheduler.credit_of(key) for key in range(4)]
        # 0.99 byte per ns, and the grant that is always there when the first asks.
        assert sum(granted) * 256 <= 0.99 * now + 4096
        assert (scheduler.next_grant_time() is None) == (granted == targets)


@given(
    st.integers(1_000_000, 10**12),
    st.integers(1000, 10**9),
    st.lists(st.tuples(st.sampled_from(("whole", "marked", "trimmed")), st.integers(0, 9000), st.integers(0, 10**10))),
)
def test_the_granted_share_is_never_nothing_nor_more_than_the_link(
    rate_bps: int, rtt_ns: int, course: list[tuple[str, int, int]]
) -> None:
    share = GrantShare(rate_bps, rtt_ns, 0)
    now = 0
    for what, size, pause in course:
        now += pause
        if what == "trimmed":
            share.on_trimmed()
        else:
            share.on_packet(size, what == "marked")
        before = share.share
        share.update(now)
        assert LEAST_SHARE <= share.share <= 1
        if all(kind == "whole" for kind, _, _ in course):
            assert share.share >= before
    share.update(now + 1000 * rtt_ns)
    assert share.share == 1


@settings(deadline=None)
@given(
    st.sampled_from(PathKind),
    st.lists(st.integers(1, 65_535), min_size=1, max_size=20, unique=True),
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 40_000), st.sampled_from(PathFeedback), st.booleans()), max_size=80),
)
def test_selectors_give_what_they_were_given(
    kind: PathKind, entropies: list[int], seed: int, course: list[tuple[int, PathFeedback, bool]]
) -> None:
    paths = make_paths(kind, entropies, Random(seed), 12_000)
    now = 0
    for pause, verdict, idle in course:
        now += pause
        if idle:
            paths.on_idle(now)
        entropy = paths.next_entropy(now)
        assert entropy in entropies
        paths.feedback(entropy, verdict, now)


@settings(deadline=None)
@given(
    st.sampled_from([PathKind.BITMAP, PathKind.REPS]), st.integers(0, 2**32), st.sets(st.integers(1, 64), max_size=8)
)
def test_congested_paths_are_avoided_while_they_are_few(kind: PathKind, seed: int, congested: set[int]) -> None:
    paths = make_paths(kind, range(1, 65), Random(seed), 12_000)
    for entropy in congested:
        paths.feedback(entropy, PathFeedback.MARKED, 0)
    used = [paths.next_entropy(11_999) for _ in range(64)]
    # The permutation passes them over; random draws give up after a few.
    assert sum(entropy in congested for entropy in used) <= (0 if kind is PathKind.BITMAP else 2)
