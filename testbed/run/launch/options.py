"""The options of a launch: on which hosts its ranks start, in which order, and with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import TestbedError

if TYPE_CHECKING:
    from testbed.lab.core.plan.lab_plan import PortPlan


class LaunchRefused(TestbedError):
    """A launch that the lab cannot give what it asks for. Nothing was started."""


class LaunchOrder(StrEnum):
    """The order of the hosts that ranks are numbered by."""

    RACK = "rack"
    """Segment by segment, as schedulers place them: most neighbours of a ring are on one switch."""
    INTERLEAVE = "interleave"
    """The next host is one of the next segment: neighbours of a ring meet over the spines."""
    LIST = "list"
    """As the list of hosts says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options of a launch. Each has a default that starts one rank on every host, over TCP.

    `hosts` are names, or patterns of them (fnmatch); none are all hosts of the lab. `per_gpu` starts a rank for each
    NIC of a host, and goes before `ranks_per_host`. `transport` is a key of `testbed.run.launch.transports.TRANSPORTS`.
    `pmi` serves PMI-1 to the ranks. `env` is added to their environment, over all that the launch sets itself. `cc` is
    the congestion control of TCP in their hosts for as long as they run, as the kernel names it ("": as it is).
    `timeout_s` is how long they may take. `ipv6` has them find each other by addresses of IPv6. `directory` is their
    working directory on hosts that are no containers; by default it is that of the caller. `nics` are the NICs of the
    ranks, in their order, where somebody else has placed them: `hosts`, `ranks_per_host`, `per_gpu` and `order` say
    nothing then.
    """

    hosts: tuple[str, ...] = ()
    ranks_per_host: int = 1
    per_gpu: bool = False
    order: LaunchOrder = LaunchOrder.RACK
    transport: str = "tcp"
    pmi: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    cc: str = ""
    timeout_s: float | None = None
    ipv6: bool = False
    directory: Path | None = None
    nics: tuple[PortPlan, ...] = ()
