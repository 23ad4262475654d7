"""All services, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from testbed.services.aaa import Aaa
from testbed.services.bmp import Bmp
from testbed.services.dhcp import Dhcp
from testbed.services.dns import Dns
from testbed.services.lldp import Lldp
from testbed.services.ntp import Time
from testbed.services.redfish import Redfish
from testbed.services.service import Service
from testbed.services.slurm import Slurm
from testbed.services.ssh import Ssh
from testbed.services.syslog import Syslog
from testbed.services.telemetry import Telemetry

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
