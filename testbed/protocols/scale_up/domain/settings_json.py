"""Settings of the ends of links as JSON, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from testbed.protocols.scale_up.domain.endpoint import Gpu, Spray
from testbed.protocols.scale_up.domain.link import FlowControl, LinkSettings
from testbed.protocols.scale_up.retry import RetryConfig


def encode_gpu(gpu: Gpu) -> dict[str, Any]:
    """Return a GPU's settings as JSON has them."""
    return dataclasses.asdict(gpu) | {"addresses": [[own.hex(), peer.hex()] for own, peer in gpu.addresses]}


def decode_gpu(fields: Mapping[str, Any]) -> Gpu:
    """Read back what `encode_gpu` wrote. Raises `KeyError`, `TypeError`, `ValueError` and `UsageError` for others."""
    return Gpu(
        **{
            **fields,
            "link": decode_link(fields["link"]),
            "addresses": [(bytes.fromhex(own), bytes.fromhex(peer)) for own, peer in fields["addresses"]],
            "spray": Spray(fields["spray"]),
        }
    )


def decode_link(fields: Mapping[str, Any]) -> LinkSettings:
    """Read back what `dataclasses.asdict` made of a link's settings; raises as `decode_gpu`."""
    retry = fields["retry"]
    return LinkSettings(
        **{
            **fields,
            "flow_control": FlowControl(fields["flow_control"]),
            "retry": None if retry is None else RetryConfig(**retry),
        }
    )
