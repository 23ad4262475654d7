"""Who marks ECN in a lab: what `ecn: {by: kernel}` and its like ask of the machine."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.base.datapath.markers import MARKERS, MarkerDeclaration
from testbed.base.errors import CapabilityError
from testbed.lab.core.model import Lab


def kernel_marked(lab: Lab) -> list[tuple[str, MarkerDeclaration]]:
    """Return the classes that a qdisc of the kernel is to mark, each with its marker; empty where eBPF marks all."""
    classes = [item for policy in lab.policies for profile in policy.profiles for item in profile.classes]
    marked = ((item.name, MARKERS[item.ecn.by]) for item in classes if item.ecn)
    return list(dict.fromkeys((name, marker) for name, marker in marked if marker.qdisc))


def check_kernel_markers(lab: Lab, answers: Mapping[str, str]) -> None:
    """Raise `CapabilityError` where a class is to be marked by a qdisc that the kernel does not have.

    `answers` are the machine's, by the name of the capability: "" where it has it, else its word.
    """
    for name, marker in kernel_marked(lab):
        if why := answers[marker.capability]:
            raise CapabilityError(
                f"qos.classes.{name}.ecn: marks by the kernel need {marker.option}, which this kernel does not have"
                f" ({why})",
                missing=marker.option,
                hint="run a kernel that has it (Debian's and Ubuntu's do, as a module; `testbed --on vm` runs one), or"
                " say `by: ebpf`",
            )
