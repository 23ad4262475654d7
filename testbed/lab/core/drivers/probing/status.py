"""The state of a thing that a lab may need on this machine, and the answers of the probes."""

from __future__ import annotations

from enum import StrEnum

Answers = dict[str, str]
"""By name ("qdisc.htb", "link.veth", ...): "" where it works, else why not."""


class Status(StrEnum):
    OK = "ok"
    MISSING = "missing"
    DEGRADED = "degraded"
