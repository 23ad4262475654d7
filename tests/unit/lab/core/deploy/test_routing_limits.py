"""What the routing daemons of a lab are refused for before any is started."""

from pathlib import Path

import pytest

from testbed.base.errors import CapabilityError
from testbed.lab.core.deploy.routing import daemon_sets
from testbed.lab.core.drivers.probing.machine import FrrInstallation
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import Routing
from testbed.lab.core.plan.lab import plan_lab


@pytest.mark.parametrize("most", [64, 32])
def test_an_frr_that_was_built_for_fewer_next_hops_is_refused(tmp_path: Path, most: int) -> None:
    """bgpd takes no `maximum-paths` above its own limit, and would go on with one path."""
    lab = generate_fabric(FabricParams(design="rail-optimized", routing=Routing(ecmp=65)), name="x")
    frr = FrrInstallation(directory=Path("/opt/frr"), version=(10, 3), daemons=("zebra", "bgpd"), multipath=most)
    with pytest.raises(
        CapabilityError, match=f"built for {most} next hops of a route, and routing.ecmp is 65"
    ) as caught:
        daemon_sets(lab, plan_lab(lab, k=1000), tmp_path, frr)
    assert caught.value.hint == f"fabric: {{routing: {{ecmp: {most}}}}}"
