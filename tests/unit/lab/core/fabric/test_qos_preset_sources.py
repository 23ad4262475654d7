"""The thresholds of every QoS preset, as the sources that `testbed.lab.core.fabric.qos_presets` names have them."""

import pytest

from testbed.lab.core.fabric.qos_presets import QOS_PRESETS, RDMA
from testbed.lab.core.model import Depth, DepthUnit

KB = 1000
SOURCES = {
    # qos_config.j2, AZURE_LOSSLESS: green_min_threshold, green_max_threshold, green_drop_probability
    "sonic": (Depth(1_048_576), Depth(2_097_152), 0.05),
    "cisco": (Depth(150 * KB), Depth(3000 * KB), 0.07),
    "arista": (Depth(256 * KB), Depth(512 * KB), 1.0),
    "nvidia": (Depth(150 * KB), Depth(1500 * KB), 1.0),
    "dcqcn": (Depth(5 * KB), Depth(200 * KB), 0.01),
    "uec": (Depth(0.2, DepthUnit.BDP), Depth(0.8, DepthUnit.BDP), 1.0),
}
"""Kmin, Kmax, Pmax."""


@pytest.mark.parametrize("name", QOS_PRESETS)
def test_a_preset_has_the_curve_of_its_source(name: str) -> None:
    (rdma,) = (one for one in QOS_PRESETS[name].profile.classes if one.name == RDMA)
    assert (rdma.ecn.kmin, rdma.ecn.kmax, rdma.ecn.pmax) == SOURCES[name]
