"""RUDI under trimming: early words of losses, and how often they count."""

import pytest
from wire_pair import JOB, WirePair, header

from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import Mode, NackCode, NackFlag
from testbed.protocols.uet.packets.pds import Nack

KEY = 99


class Trimmed(WirePair):
    """One RUDI WRITE is under way on a fabric that trims."""

    def __init__(self) -> None:
        super().__init__(trimming=True)
        self.memory = bytearray(4096)
        self.b.register(self.memory, Access.REMOTE_WRITE, JOB, KEY)
        self.operation = self.ea.write(self.to_b, b"x" * 4096, RemoteBuffer(KEY), self.now, mode=Mode.RUDI)

    def lose(self, *, last_hop: bool = False, ce: bool = False) -> Nack:
        """A switch trims the request: its NACK."""
        (request,) = self.take(self.a)
        self.give(request, trim=24, last_hop=last_hop, ce=ce)
        (answer,) = self.take(self.b)
        nack = header(answer)
        assert isinstance(nack, Nack) and nack.nack_psn == header(request).packet_id
        self.give(answer)
        return nack


@pytest.mark.parametrize(("last_hop", "code"), [(False, NackCode.TRIMMED), (True, NackCode.TRIMMED_LASTHOP)])
@pytest.mark.parametrize("ce", [False, True])
def test_a_nack_says_where_a_request_was_trimmed(last_hop: bool, code: NackCode, ce: bool) -> None:
    pair = Trimmed()
    nack = pair.lose(last_hop=last_hop, ce=ce)
    assert nack.nack_code is code
    assert nack.flags == NackFlag.RUDI | (NackFlag.MARKED if ce else 0)
    assert (nack.spdcid, nack.dpdcid) == (0, 0)
    pair.settle()
    assert pair.operation.ok and pair.memory == b"x" * 4096


def test_after_max_nack_retx_the_time_out_decides() -> None:
    pair = Trimmed()
    for _ in range(pair.a.config.max_nack_retx + 1):
        pair.lose()
    assert pair.take(pair.a) == []
    pair.run(pair.operation)
    assert pair.operation.ok and pair.a.counters["timeout"] == 1
