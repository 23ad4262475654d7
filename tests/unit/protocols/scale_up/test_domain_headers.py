"""The header study in virtual time: goodput of small and large writes behind the headers of four kinds of networks."""

from __future__ import annotations

import pytest
from virtual_domain import Closing, VirtualDomain

from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.endpoint import Kind
from testbed.protocols.scale_up.domain.link import LinkSettings
from testbed.protocols.scale_up.header_stacks import HEADER_STACKS, LAB

RATE_BPS = 1_000_000_000
WRITES = 300
REGION = 4096


@pytest.mark.parametrize("payload", [64, 256, 1024, 4096])
@pytest.mark.parametrize("headers", [LAB, *HEADER_STACKS])
def test_goodput_is_that_of_the_layout(closing: Closing, headers: str, payload: int) -> None:
    """S10: the time between two writes is what each takes of the line, within a percentage point of goodput."""
    link = LinkSettings(rate_bps=RATE_BPS, delay_ns=1_000, headers=headers, silence_ns=0)
    domain = closing(VirtualDomain(link, gpus=2))
    writes = [domain.begin(0, Kind.WRITE, 1, bytes(payload), number * REGION) for number in range(WRITES)]
    domain.run(10_000_000_000, *writes)
    ends = [domain.ended[handle].ended_ns for handle in writes]
    counted = domain.native.endpoint_vc_counters(domain.endpoints[0], 0, 0).contents
    arrived = domain.counters(1)["payload_bytes"]
    stack = HEADER_STACKS.get(headers)
    share = payload / (payload + binding.OVERHEAD_BYTES if stack is None else stack.line_bytes(payload))
    assert (WRITES - 1) * payload * 8e9 / (ends[-1] - ends[0]) / RATE_BPS == pytest.approx(share, abs=0.01)
    assert (counted.tx_frames, arrived) == (WRITES, WRITES * payload)
    assert arrived / counted.tx_line_bytes == pytest.approx(share, abs=0.005)
