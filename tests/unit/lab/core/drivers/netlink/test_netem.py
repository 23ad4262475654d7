"""Messages of the wire against what iproute2 6.1 sends for the same commands, and HTB classes read and written."""

from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.rtnetlink import TCA_OPTIONS, attributes, messages
from testbed.lab.core.drivers.netlink import netem as wire
from testbed.lab.core.drivers.netlink.netem import HtbClass
from testbed.lab.core.plan.operations import DelayPort

# `tc qdisc add dev wb root handle 1: netem delay 5us 1us limit 1000`: the body, wb having index 2.
NETEM = bytes.fromhex(
    "000000000200000000000100ffffffff000000000a0001006e6574656d000000"
    "1c0002004e000000e80300000000000000000000000000000f000000"
)
# The same with `rate 34359738360bit`: the TCA_NETEM_RATE attribute behind the options.
NETEM_RATE = bytes.fromhex("14000600ffffffff000000000000000000000000")
# `tc filter add dev wb ingress pref 1 handle 800::800 u32 match u32 0 0 action mirred egress redirect dev wb`
REDIRECT_HEADER = bytes.fromhex("000000000200000000080080f2ffffff000301000800010075333200")
REDIRECT_SELECTOR = bytes.fromhex("0100010000000000000000000000000000000000000000000000000000000000")
REDIRECT_MIRRED = bytes.fromhex("0000000000000000040000000000000000000000" + "01000000" + "02000000")


def body_of(data: bytes) -> bytes:
    ((_, _, _, body),) = messages(data)
    return bytes(body)


def nested(data: bytes, *path: int) -> bytes:
    for kind in path:
        data = {key: bytes(value) for key, value in attributes(data)}[kind]
    return data


def options(data: bytes) -> bytes:
    return {kind: bytes(value) for kind, value in attributes(body_of(data), 20)}[TCA_OPTIONS]


def test_netem_is_what_tc_sends_and_more_precise_times() -> None:
    ours = body_of(wire.set_netem(2, 5_000, 1_000, 1000))
    assert ours[:32] + ours[36:60] == NETEM[:32] + NETEM[36:], "differs only by the length of the options"
    extra = {kind: bytes(value) for kind, value in attributes(options(wire.set_netem(2, 5_000, 1_000, 1000)), 24)}
    assert int.from_bytes(extra[wire.TCA_NETEM_LATENCY64], "little", signed=True) == 5_000
    assert int.from_bytes(extra[wire.TCA_NETEM_JITTER64], "little", signed=True) == 1_000
    assert extra[wire.TCA_NETEM_RATE] == NETEM_RATE[4:], "a rate keeps packets with jitter in order"


def test_netem_without_jitter_has_no_rate_and_long_delays_are_exact() -> None:
    delay_ns = 400_000_000_001  # more ticks than 32 bits hold
    packed = options(wire.set_netem(2, delay_ns, 0, 77))
    assert packed[:8] == bytes.fromhex("ffffffff") + (77).to_bytes(4, "little")
    extra = {kind: bytes(value) for kind, value in attributes(packed, 24)}
    assert int.from_bytes(extra[wire.TCA_NETEM_LATENCY64], "little", signed=True) == delay_ns
    assert wire.TCA_NETEM_RATE not in extra


def test_adding_is_exclusive_and_changing_is_not() -> None:
    for change, flags in ((False, 0x601), (True, 0x1)):
        ((kind, found, _, _),) = messages(wire.set_netem(2, 1, 0, 1, change=change))
        assert (kind, found) == (36, flags)


def test_redirect_is_what_tc_sends() -> None:
    data = wire.redirect_arrivals(2, 2)
    assert body_of(data)[: len(REDIRECT_HEADER)] == REDIRECT_HEADER
    assert nested(options(data), wire.TCA_U32_SEL) == REDIRECT_SELECTOR
    action = nested(options(data), wire.TCA_U32_ACT, 1)
    assert nested(action, wire.TCA_ACT_KIND) == b"mirred\0"
    assert nested(action, wire.TCA_ACT_OPTIONS, wire.TCA_MIRRED_PARMS) == REDIRECT_MIRRED


def delay_port(*, clsact: bool) -> DelayPort:
    return DelayPort(
        node="n",
        name="uplink1",
        ifindex=7,
        port=3,
        ifb_name="_wire7",
        ifb_ifindex=1007,
        mtu_bytes=4500,
        delay_ns=10,
        jitter_ns=0,
        limit_packets=5,
        clsact=clsact,
    )


def test_a_port_is_delayed_in_order_and_undone_without_its_own_program() -> None:
    kinds = [message[0] for data in wire.delay_port(delay_port(clsact=True)) for message in messages(data)]
    assert kinds == [16, 36, 16, 36, 44], "ifb, netem, up, clsact, filter"
    kinds = [message[0] for data in wire.delay_port(delay_port(clsact=False)) for message in messages(data)]
    assert kinds == [16, 36, 16], "the port's program does the rest"
    undone = {
        clsact: [message[0] for data in wire.undelay_port(delay_port(clsact=clsact)) for message in messages(data)]
        for clsact in (False, True)
    }
    assert undone == {False: [17], True: [37, 17]}


def test_classes_read_back_as_they_were_made() -> None:
    line = wire.parse_class(body_of(traffic.new_htb_line_class(9, 400_000_000, 25_000, 1500)))
    assert (line.handle, line.parent) == (0x10001, 0x10000)
    assert (line.rate, line.ceil, line.quantum, line.rank) == (50_000_000, 50_000_000, 1514, 0)
    assert line.buffer == line.cbuffer == 500_000 >> 6, "500 us in ticks of 64 ns"
    item = wire.parse_class(
        body_of(
            traffic.new_htb_traffic_class(
                9, 3, line_rate_bps=400_000_000, burst_bytes=25_000, quantum_bytes=4000, rank=1
            )
        )
    )
    assert (item.handle, item.rate, item.ceil, item.quantum, item.rank) == (0x10013, 1, 50_000_000, 4000, 1)
    assert (item.buffer, item.cbuffer) == (0, 500_000 >> 6), "it saves up nothing that the line has no tokens for"


def test_a_changed_class_is_written_as_read() -> None:
    fast = HtbClass(
        handle=0x10013, parent=0x10001, rate=5_000_000_000, ceil=50_000_000_000, buffer=1, cbuffer=2, quantum=3, rank=1
    )
    assert wire.parse_class(body_of(wire.change_class(9, fast))) == fast, "rates beyond 32 bits too"
    assert wire.parse_class(b"\0" * 20 + bytes.fromhex("0800010074626600")) is None


def test_equal_rates_restore_the_originals_and_others_scale_all_classes() -> None:
    originals = [
        HtbClass(handle=0x10001, parent=0x10000, rate=1000, ceil=1000, buffer=9, cbuffer=9, quantum=1, rank=0),
        HtbClass(handle=0x10010, parent=0x10001, rate=10, ceil=1000, buffer=7, cbuffer=8, quantum=2, rank=1),
    ]
    restored = [wire.parse_class(body_of(data)) for data in wire.change_rate(9, originals, 8000, 8000)]
    assert restored == originals
    half = [wire.parse_class(body_of(data)) for data in wire.change_rate(9, originals, 4000, 8000)]
    assert [(item.rate, item.ceil) for item in half if item] == [(500, 500), (5, 500)]
    assert [(item.buffer, item.cbuffer) for item in half if item] == [(9, 9), (7, 8)], "as far ahead, in time"
    assert [item.quantum for item in half if item] == [1, 2], "shares stay"


def test_no_rate_is_ever_zero() -> None:
    tiny = HtbClass(handle=1, parent=0, rate=1, ceil=1, buffer=1, cbuffer=1, quantum=1, rank=0).scaled(0.001)
    assert (tiny.rate, tiny.ceil) == (1, 1)
