"""The kernel's NVMe/TCP targets of a lab: modules that they need, and the removal of what killed runs have left."""

from __future__ import annotations

from testbed.base.errors import DriverError
from testbed.base.linux.modules import ModuleState, load_module, module_state
from testbed.base.names import kernel_target_nqn
from testbed.endpoints.storage.kernel_target import remove_kernel_targets
from testbed.lab.core.drivers.probing.machine_probe import NVMET_MODULES

_OPTIONS = {"null_blk": ("nr_devices=0",)}
"""Loaded without, null_blk makes a device of its own."""


def load_nvmet() -> None:
    """Load what the kernel's targets need; it stays. Raises `CapabilityError`."""
    for name in NVMET_MODULES:
        if module_state(name) is ModuleState.AVAILABLE:
            load_module(name, *_OPTIONS.get(name, ()), hint="served_by: user-space needs no module")


def remove_targets_of(lab: str) -> list[str]:
    """Remove the kernel's targets that runs of a lab have left because they were killed; their NQNs.

    They go before their namespaces, which a listening socket of the kernel keeps. Raises `DriverError`.
    """
    try:
        return remove_kernel_targets(kernel_target_nqn(lab, ""))
    except OSError as error:
        raise DriverError(f"the kernel's NVMe/TCP targets do not go: {error}", operation="nvmet") from error
