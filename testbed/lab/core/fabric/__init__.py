"""Generators: a design such as "rail-optimized" becomes nodes and links; sizing of any lab."""

from testbed.lab.core.fabric.base_rtt import declared_base_rtt, model_base_rtt
from testbed.lab.core.fabric.bfd import resolve_routing
from testbed.lab.core.fabric.bisection import Bisection, measure_bisection
from testbed.lab.core.fabric.designs import DESIGNS, Design
from testbed.lab.core.fabric.generate import generate_fabric
from testbed.lab.core.fabric.params import FabricParams, NicParams, RailParams, UplinkParams
from testbed.lab.core.fabric.paths import EcmpWidth, PathCount, Relation
from testbed.lab.core.fabric.ports import PORT_MAPS
from testbed.lab.core.fabric.qos_presets import QOS_PRESETS, QosPreset
from testbed.lab.core.fabric.shape import check_params
from testbed.lab.core.fabric.sizing import RoleSizing, Sizing, check_sizing, measure_sizing
