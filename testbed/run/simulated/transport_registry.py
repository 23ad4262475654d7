"""Every transport that can be simulated, by its name: a module of `transports` that has the name, and a `TRANSPORT`.

Nothing else has to be told of it. It is one of `testbed.endpoints.worker.transports` whose endpoints do no I/O of their
own. A module has an underscore where the name has a hyphen.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from testbed.endpoints.sockets import Marking
from testbed.endpoints.worker.program import Program, Settings
from testbed.endpoints.worker.stack_sockets import StackLoop
from testbed.endpoints.worker.traffic import Listener, Traffic
from testbed.protocols.simulation.nic import NicHost
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.schema.model import Transport
from testbed.run.simulated import transports
from testbed.run.simulated.site import RunSite
from testbed.run.transports.lab_transport import LabTransport

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers


def emulated_settings(transport: LabTransport, placement: PlacedWorkload) -> Callable[[str], Settings]:
    """Return what tells the settings of each host's worker: those of an emulated run."""
    return transport.worker_settings(placement)


def emulated_approximations(transport: LabTransport) -> list[str]:
    """Return what an emulated run says."""
    return transport.approximations()


def check_nothing(transport: Transport) -> None:
    """Find that all that a scenario may ask of the transport can be simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTransport:
    """The parts of a transport that the simulator needs."""

    make_traffic: Callable[[Program, RunSite, CollectiveBuffers | None, Listener, StackLoop], Traffic]
    """Puts the endpoints of a program into `RunSite.endpoints`, and the stacks of its sockets, if it has any, into its
    loop. Raises `TrafficError` where it cannot be carried."""
    host: type[NicHost]
    """The class of NICs that the network makes of endpoints."""
    port: int
    """The UDP port that endpoints listen on, which switches hash; 0 where packets have their own."""
    marking_of: Callable[[Settings], Marking]
    """Gives the marking of datagrams, by the settings of any host."""
    settings_of: Callable[[LabTransport, PlacedWorkload], Callable[[str], Settings]] = emulated_settings
    """Must say the same for the same seed."""
    approximations: Callable[[LabTransport], list[str]] = emulated_approximations
    """Says what a simulated run over it does not reproduce, a sentence each."""
    check: Callable[[Transport], None] = check_nothing
    """Raises `ScenarioError` for what a scenario asks of it that cannot be simulated."""


@cache
def simulated_names() -> tuple[str, ...]:
    """Return the names of all transports that can be simulated, in order."""
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(transports.__path__)))


def simulated_transport(name: str) -> SimulatedTransport:
    """Return the transport of that name, which must be there."""
    assert name in simulated_names()
    found = import_module(f"{transports.__name__}.{name.replace('-', '_')}").TRANSPORT
    assert isinstance(found, SimulatedTransport)
    return found
