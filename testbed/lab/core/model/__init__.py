"""The frozen, resolved lab."""

from testbed.base.datapath.abi import AdaptPer, BalancingMode, HashField
from testbed.base.datapath.markers import MarkAt, MarkBy
from testbed.base.datapath.traffic_class import Depth, DepthUnit, EcnCurve, NonEct, PfcThresholds, TrafficClass
from testbed.lab.core.model.end import End
from testbed.lab.core.model.guards import NO_GUARDS, Guard, Guards
from testbed.lab.core.model.infiniband import InfinibandPartition, InfinibandSettings, whole_lab
from testbed.lab.core.model.lab import (
    BACKEND,
    NETNS,
    OUT_OF_BAND,
    Bfd,
    Delay,
    DelayBy,
    InfinibandFabric,
    Lab,
    LagBy,
    Link,
    LinkKind,
    Network,
    Node,
    NodeKind,
    Place,
    Protocol,
    RailSubnet,
    Rdma,
    Role,
    Routing,
    Scale,
)
from testbed.lab.core.model.overlay import (
    External,
    Overlay,
    Service,
    ServiceProtocol,
    Talk,
    Tenant,
    TenantSubnet,
    VrfBy,
)
from testbed.lab.core.model.qos import Buffer, HashEngine, LoadBalancing, QosPolicy, QosProfile, Watchdog
from testbed.lab.core.model.scale_up import (
    SCALE_UP_PRESETS,
    TRANSACTION,
    UNSTATED_SCALE_UP,
    Credits,
    DomainSpan,
    LinkRetry,
    PlaneSpray,
    ScaleUp,
    ScaleUpBy,
    ScaleUpFlowControl,
    ScaleUpHeaders,
    ScaleUpPool,
)
from testbed.lab.core.model.startup import ConfigText, StartupConfig
