"""The transports that the bytes of ranks may go over, by name. What carries them is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from testbed.base.names import known_names_hint
from testbed.run.launch.options import LaunchRefused

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.plan.lab_plan import PortPlan

TCP = "tcp"


class Served(Protocol):
    """A transport while it serves the NICs of ranks."""

    def environment(self, nic: PortPlan) -> Mapping[str, str]:
        """The variables that the ranks on a NIC have for it, over those of libraries."""

    @property
    def watched(self) -> Mapping[str, int]:
        """The processes that the ranks depend on, by what each is: its descriptor (pidfd_open(2))."""

    def sent_again(self) -> int | None:
        """The packets that were sent again since the begin; None where nobody can tell."""


class KernelTcp:
    """TCP of the hosts' kernels, which nothing has to serve."""

    watched: Mapping[str, int] = MappingProxyType({})

    def environment(self, nic: PortPlan) -> Mapping[str, str]:
        """Nothing: the table of libraries has it."""
        del nic
        return {}

    def sent_again(self) -> int | None:
        """None: the hosts' counters tell."""
        return None


Serve = Callable[["RunningLab", Sequence["PortPlan"]], AbstractContextManager[Served]]


def _kernel_tcp(lab: RunningLab, nics: Sequence[PortPlan]) -> AbstractContextManager[Served]:
    del lab, nics
    return nullcontext(KernelTcp())


def _carried(kind: str, lab: RunningLab, nics: Sequence[PortPlan]) -> AbstractContextManager[Served]:
    found: AbstractContextManager[Served] = _function("testbed.run.carrier.carrying", "carry")(lab, nics, kind)
    return found


def _provided(lab: RunningLab, nics: Sequence[PortPlan]) -> AbstractContextManager[Served]:
    found: AbstractContextManager[Served] = _function("testbed.run.launch.libfabric", "serve_provider")(lab, nics)
    return found


def _function(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


TRANSPORTS: Mapping[str, Serve] = MappingProxyType(
    {TCP: _kernel_tcp, "uet": partial(_carried, "uet"), "roce": partial(_carried, "roce"), "libfabric": _provided}
)


def find_transport(name: str) -> Serve:
    """Raises `LaunchRefused` for a name that no transport has."""
    if name not in TRANSPORTS:
        raise LaunchRefused(f"no transport is called {name!r}", hint=known_names_hint(name, list(TRANSPORTS)))
    return TRANSPORTS[name]
