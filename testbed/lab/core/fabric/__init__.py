"""Generators: a design such as "rail-optimized" becomes nodes and links; sizing of any lab."""

from testbed.base.errors import FabricError
from testbed.lab.core.fabric.base_rtt import declared_base_rtt, model_base_rtt
from testbed.lab.core.fabric.bfd import resolve_routing
from testbed.lab.core.fabric.bisection import Bisection, measure_bisection
from testbed.lab.core.fabric.designs import DESIGNS, Design
from testbed.lab.core.fabric.generate import generate_fabric
from testbed.lab.core.fabric.params import FabricParams, NicParams, RailParams, UplinkParams
from testbed.lab.core.fabric.paths import PathCount, Relation, equal_cost_paths
from testbed.lab.core.fabric.ports import PORT_MAPS
from testbed.lab.core.fabric.qos_presets import QOS_PRESETS, QosPreset
from testbed.lab.core.fabric.shape import check_params
from testbed.lab.core.fabric.sizing import RoleSizing, Sizing, check_sizing, measure_sizing

__all__ = [
    "DESIGNS",
    "PORT_MAPS",
    "QOS_PRESETS",
    "Bisection",
    "Design",
    "FabricError",
    "FabricParams",
    "NicParams",
    "PathCount",
    "QosPreset",
    "RailParams",
    "Relation",
    "RoleSizing",
    "Sizing",
    "UplinkParams",
    "check_params",
    "check_sizing",
    "declared_base_rtt",
    "equal_cost_paths",
    "generate_fabric",
    "measure_bisection",
    "measure_sizing",
    "model_base_rtt",
    "resolve_routing",
]
