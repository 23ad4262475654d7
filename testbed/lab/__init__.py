"""A lab: from a topology file over a plan to nodes, links and routing that are really there, and back to nothing."""

from testbed.lab.core.assembly import register_assembly
from testbed.lab.core.feature import register

register(
    "testbed.lab.features.containers.feature",
    "testbed.lab.features.guards.feature",
    "testbed.lab.features.management.feature",
    "testbed.lab.features.mlag.feature",
    "testbed.lab.features.scale_up.feature",
    "testbed.lab.features.overlay.feature",
    "testbed.lab.features.targets.feature",
    "testbed.lab.features.infiniband.feature",
    "testbed.lab.features.machines.feature",
)
register_assembly("testbed.lab.assembly.meeting")
