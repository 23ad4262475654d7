"""Operations of all kinds side by side end as soon as the network allows: no response holds up what came after it.

A guaranteed response pins CACK_PSN until it is cleared (UE Specification 1.0, section 3.5.20). Without loss a mix of
operations takes no longer than two round trips and the time its bytes take on the wire, with loss no longer than the
time-outs that the losses explain.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_fabric import ALL_ACCESS, BASE_RTT_NS, JOB, NEVER_NS, PAYLOAD, RATE, Fabric, config, port_settings

from testbed.protocols.simulation import Impairments
from testbed.protocols.simulation.frame import Frame
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.memory import RemoteBuffer
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode, ReturnCode
from testbed.protocols.uet.semantics.endpoint import TaggedMessage
from testbed.protocols.uet.semantics.operations import Operation

KEY, NO_KEY = 5, 6
ROOM = 1 << 20
HEADERS = 66 + 32 + 44
"""Below the transport, an ACK's or request's PDS header, and the standard SES header."""
PACKETS_EACH = 4
"""Of an operation, beside those of its data: requests and ACKs of both directions, CLEAR or ACK_REQ and its ACK."""
KINDS = ("write", "refused", "atomic", "fetch", "read", "rudi-write", "rudi-read", "send", "tsend", "unexpected")
SIZES = (0, 8, 64, 4096, 20_000, 100_000)
mixes = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(SIZES), st.sampled_from(("rud", "rud", "rod"))), max_size=60
)


class _Dropper:
    """Loses frames by their numbers, of all that pass a line."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = set(numbers)
        self._passed = 0

    def __call__(self, _frame: Frame) -> bool:
        self._passed += 1
        return self._passed - 1 in self._numbers


class Mix:
    """Operations from host 0 to host 1 of a simulated fabric, all begun at once."""

    def __init__(
        self, mix: Sequence[tuple[str, int, str]], *, spines: int, seed: int = 1, impairments: Impairments | None = None
    ) -> None:
        fabric = Fabric(2, config(max_rto_retx=15), seed=seed)
        self.fabric = (
            fabric.leaf_spine(2, spines, port_settings(False)) if spines else fabric.star(port_settings(False))
        )
        self.network = fabric.network
        self.cells = bytearray(ROOM)
        fabric.feps[1].register(self.cells, ALL_ACCESS, JOB, KEY)
        if impairments is not None:
            self.network.impair(list(self.network.lines), impairments)
        self.operations = [self._begin(number, *what) for number, what in enumerate(mix)]
        self.mix = mix

    def _begin(self, number: int, kind: str, size: int, mode_name: str) -> Operation:
        fabric, now = self.fabric, self.network.now
        here, there = fabric.endpoints
        to, mode = fabric.addresses[1], Mode[mode_name.upper()]
        data = bytes([number & 0xFF]) * size
        one = (1).to_bytes(8, "little")
        match kind:
            case "write":
                return here.write(to, data, RemoteBuffer(KEY, 8), now, mode=mode)
            case "refused":
                return here.write(to, data, RemoteBuffer(NO_KEY), now, mode=mode)
            case "atomic" | "fetch":
                fetch = bytearray(8) if kind == "fetch" else None
                return here.atomic(
                    to, Amo(AmoOpcode.SUM, AmoType.UINT64, one), RemoteBuffer(KEY), now, fetch=fetch, mode=mode
                )
            case "read":
                return here.read(to, bytearray(size), RemoteBuffer(KEY, 8), now, mode=mode)
            case "rudi-write":
                return here.write(to, data, RemoteBuffer(KEY, 8), now, mode=Mode.RUDI)
            case "rudi-read":
                return here.read(to, bytearray(size), RemoteBuffer(KEY, 8), now, mode=Mode.RUDI)
            case "send":
                there.recv(bytearray(max(SIZES)), now)
                return here.send(to, data, now, mode=mode)
            case _:
                if kind == "tsend":
                    there.trecv(bytearray(size), number, now)
                return here.tsend(to, TaggedMessage(data, number), now, mode=mode)

    def run(self) -> int:
        """Until all have ended: the time of the last. Each has ended as it should, and each atomic happened once."""
        self.network.nics[self.fabric.feps[0].address].wake()
        self.network.run(NEVER_NS, lambda: all(operation.done for operation in self.operations))
        for (kind, size, _), operation in zip(self.mix, self.operations, strict=True):
            wanted = ReturnCode.BAD_MKEY if kind == "refused" and size else operation.status
            assert operation.done and operation.status is wanted, (kind, size, operation)
            assert operation.ok or kind == "refused", (kind, size, operation)
        sums = sum(kind in ("atomic", "fetch") for kind, _, _ in self.mix)
        assert int.from_bytes(self.cells[:8], "little") == sums
        return max((operation.finished_ns for operation in self.operations), default=0)

    @property
    def wire_ns(self) -> int:
        """What all bytes of the mix take on one wire, with all headers."""
        packets = sum(-(-size // PAYLOAD) + PACKETS_EACH for _, size, _ in self.mix)
        return (sum(size for _, size, _ in self.mix) + packets * HEADERS) * 8 * 10**9 // RATE


@settings(max_examples=150, deadline=None)
@given(mixes, st.sampled_from((0, 4)), st.integers(1, 1000))
def test_a_mix_without_loss_takes_two_round_trips_and_its_time_on_the_wire(
    mix: list[tuple[str, int, str]], spines: int, seed: int
) -> None:
    begun = Mix(mix, spines=spines, seed=seed)
    assert begun.run() <= 2 * BASE_RTT_NS + begun.wire_ns


@pytest.mark.parametrize("spines", [0, 4])
@pytest.mark.parametrize(
    ("first", "then"), [("write", "fetch"), ("fetch", "write"), ("write", "read"), ("send", "refused")]
)
def test_guaranteed_responses_among_others(first: str, then: str, spines: int) -> None:
    """36 of one kind, then 12 of another, then both in turn: what took a time-out for each response."""
    mix = [(first, 8, "rud")] * 36 + [(then, 8, "rud")] * 12 + [(first, 8, "rud"), (then, 8, "rud")] * 100
    begun = Mix(mix, spines=spines)
    assert begun.run() <= 2 * BASE_RTT_NS + begun.wire_ns


@settings(max_examples=200, deadline=None)
@given(mixes, st.lists(st.integers(0, 150), max_size=3, unique=True), st.integers(1, 1000))
def test_a_mix_with_losses_ends_within_the_time_outs_that_they_explain(
    mix: list[tuple[str, int, str]], lost: list[int], seed: int
) -> None:
    """Each lost frame costs a time-out at most, twice the one before where it hits the same packet and its answers."""
    begun = Mix(mix, spines=4, impairments=Impairments(drop=_Dropper(lost)), seed=seed)
    time_outs = sum(begun.fabric.config.rto_ns << number for number in range(len(lost)))
    assert begun.run() <= (2 + 2 * len(lost)) * BASE_RTT_NS + begun.wire_ns + time_outs


@settings(max_examples=150, deadline=None)
@given(mixes, st.sampled_from((0.01, 0.05)), st.integers(1, 1000))
def test_whatever_is_lost_each_operation_says_what_became_of_it(
    mix: list[tuple[str, int, str]], loss: float, seed: int
) -> None:
    Mix(mix, spines=4, impairments=Impairments(loss=loss), seed=seed).run()
