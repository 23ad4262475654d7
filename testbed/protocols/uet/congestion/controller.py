"""The declaration of a congestion controller of UET, so that everything else takes its name from the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.protocols.congestion.controller import Controller
from testbed.protocols.uet.congestion.context import CongestionContext

if TYPE_CHECKING:
    from testbed.protocols.uet.congestion.credit import CreditGrants
    from testbed.protocols.uet.congestion.nscc_config import NsccConfig
    from testbed.protocols.uet.congestion.window import CongestionWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextController(Controller):
    """A controller of UET: it has the context of a source, with a window, credit or both."""

    make: Callable[[NsccConfig, int], CongestionContext]
    """Takes the parameters of the endpoint and the time (ns)."""
    make_grants: Callable[[NsccConfig, int, bool], CreditGrants] | None = None
    """Makes what a destination grants to its sources, where it grants credit. Takes the time (ns) as well, and whether
    it is to grant what the fabric carries rather than its link's rate."""

    @property
    def grants_credit(self) -> bool:
        """Tell whether the destination grants credit, so that a FEP keeps its grants."""
        return self.make_grants is not None


def with_window(make: Callable[[NsccConfig, int], CongestionWindow]) -> Callable[[NsccConfig, int], CongestionContext]:
    """Return what makes the context of a controller that has a window, and no credit."""
    return lambda config, now: CongestionContext(make(config, now), None)
