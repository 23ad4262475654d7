"""All services, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from testbed.lab.features.management.services.aaa import Aaa
from testbed.lab.features.management.services.bmp import Bmp
from testbed.lab.features.management.services.dhcp import Dhcp
from testbed.lab.features.management.services.dns import Dns
from testbed.lab.features.management.services.lldp import Lldp
from testbed.lab.features.management.services.ntp import Time
from testbed.lab.features.management.services.redfish import Redfish
from testbed.lab.features.management.services.service import Service
from testbed.lab.features.management.services.slurm import Slurm
from testbed.lab.features.management.services.ssh import Ssh
from testbed.lab.features.management.services.syslog import Syslog
from testbed.lab.features.management.services.telemetry import Telemetry

REGISTRY: Mapping[str, Service] = MappingProxyType(
    {
        service.name: service
        for service in (
            Ssh(),
            Dns(),
            Dhcp(),
            Time(),
            Syslog(),
            Telemetry(),
            Lldp(),
            Redfish(),
            Bmp(),
            Aaa(),
            Slurm(),
        )
    }
)
