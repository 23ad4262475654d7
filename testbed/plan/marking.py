"""Who marks ECN in a lab: what `ecn: {by: kernel}` asks of the machine."""

from __future__ import annotations

from testbed.errors import CapabilityError
from testbed.model import Lab, MarkBy

RED_OPTION = "CONFIG_NET_SCH_RED"


def wants_red(lab: Lab) -> str:
    """The first class that the kernel is to mark; "" where eBPF marks all."""
    profiles = () if lab.qos is None else lab.qos.profiles
    return next(
        (item.name for profile in profiles for item in profile.classes if item.ecn and item.ecn.by is MarkBy.KERNEL), ""
    )


def check_red(name: str, why: str) -> None:
    """Raise `CapabilityError` where the class `name` asks for RED and the kernel has none; `why` is its word, "" if it
    has. No class, "", asks for nothing."""
    if name and why:
        raise CapabilityError(
            f"qos.classes.{name}.ecn: marks by the kernel need {RED_OPTION}, which this kernel does not have ({why})",
            missing=RED_OPTION,
            hint="run a kernel that has it (Debian's and Ubuntu's do, as a module; `testbed --on vm` runs one), or say"
            " `by: ebpf`",
        )
