"""Whether TCP had the lab's congestion control, and not the machine's, where the scenario names none."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.lab.core.model.tcp import DEFAULT_TCP_CC, FALLBACK_TCP_CC
from testbed.record.record import Check


def check_congestion_control(found: Mapping[str, str]) -> list[Check]:
    """Judge what TCP had in each host: the default, or in all of them what labs have on a kernel without it."""
    wrong = {host: name for host, name in found.items() if name != DEFAULT_TCP_CC}
    lacking = bool(wrong) and set(found.values()) == {FALLBACK_TCP_CC}
    if lacking:
        message = f"this kernel lets labs have no {DEFAULT_TCP_CC}: TCP used {FALLBACK_TCP_CC} instead"
    elif wrong:
        host, name = next(iter(wrong.items()))
        message = (
            f"{len(wrong)} hosts do not have the lab's {DEFAULT_TCP_CC}, {host} has {name}; deploy again, or say cc"
        )
    else:
        message = f"TCP used {DEFAULT_TCP_CC}, the lab's default"
    return [
        Check(
            name="tcp-cc",
            title="TCP's congestion control is the lab's",
            value=0 if lacking else len(wrong),
            limit=0,
            ok=lacking or not wrong,
            message=message,
        )
    ]
