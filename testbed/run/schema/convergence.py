"""The section `convergence:` of a scenario: by which times a simulated lab notices failures and routes around them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from testbed.base.units import Duration
from testbed.base.validation.fields import Written
from testbed.base.validation.model import SpecModel
from testbed.base.validation.quantities import Span

_Time = Written[Annotated[Duration, Span()]]
_Interval = Written[Annotated[Duration, Span(1)]]


class ConvergenceSpec(SpecModel):
    """`convergence: {carrier: 10ms, establish: 2s}`, in lab time; `run.simulated.convergence` has the defaults."""

    carrier: _Time = Field(
        default=None, description="Gives the time until both ends of a link see its carrier go or come."
    )
    power: _Time = Field(
        default=None, description="Gives the time until the first port of a switch without power has no carrier."
    )
    next_port: _Time = Field(default=None, description="Gives the time from one port of such a switch to the next.")
    reaction: _Time = Field(default=None, description="Gives the time from what bgpd hears until a session is down.")
    process: _Time = Field(default=None, description="Gives the time in which bgpd chooses its routes anew.")
    install: _Time = Field(default=None, description="Gives the time in which the kernel's table changes then.")
    establish: _Time = Field(default=None, description="Gives the time until a session has its routes again.")
    start: _Time = Field(default=None, description="Gives the time in which the daemons of a switch start.")
    hold: _Time = Field(default=None, description="Gives BGP's hold time, where a network has no BFD.")
    keepalive: _Interval = Field(default=None, description="Gives the time between two keepalives.")

    subnet: _Time = Field(
        default=None,
        description="Gives the time from a change of an InfiniBand link until the subnet manager's new tables are in"
        " force, in the real fabric's time; the default is 15ms.",
    )

    def times_ns(self) -> dict[str, int]:
        """Return the times that are written, in ns, by their names."""
        found = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: one.ns for name, one in found.items() if one is not None}
