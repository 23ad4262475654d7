"""The service `telemetry`: Prometheus on the server, which asks our own exporter there for the counters of every node.

The exporter (`testbed serve metrics`) listens at the server's loopback address, so that nothing but the server asks it;
Prometheus listens at the server's address, for whoever is on the management network.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from ipaddress import IPv4Address
from types import MappingProxyType

from testbed.lab.features.management.services.asking import get_json, is_bound
from testbed.lab.features.management.services.service import File, Place, Port, Service, ServiceProgram

USER = "prometheus"
CONFIGURATION = "prometheus.yml"
PORT = 9090
EXPORTER = IPv4Address("127.0.0.1")
EXPORTER_PORT = 9464
RETENTION, LARGEST = "2h", "256MB"
"""The time for which samples are kept, and the bytes of them: they are in memory, as all of /run."""


class Telemetry(Service):
    name = "telemetry"
    needs = ("prometheus",)
    rereads = MappingProxyType({CONFIGURATION: "prometheus"})
    looks_into_nodes = True

    def user(self, place: Place) -> str:
        return USER

    def files(self, place: Place) -> Mapping[str, File]:
        interval = f"{place.lab.services[self.name].interval.ns // 1_000_000}ms"
        lines = [
            f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}",
            "scrape_configs:",
            "- job_name: testbed",
            "  static_configs:",
            f"  - {{targets: ['{EXPORTER}:{EXPORTER_PORT}']}}",
        ]
        return {CONFIGURATION: File(text="\n".join(lines) + "\n")}

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        exporter = ServiceProgram(
            name="exporter",
            arguments=(
                *(sys.executable, "-m", "testbed", "serve", "metrics", "-n", place.lab.lab),
                *("--listen", f"{EXPORTER}:{EXPORTER_PORT}"),
            ),
            # It enters the network namespaces of all nodes, and reads the maps of their ports.
            capabilities=("sys_admin", "net_admin", "net_raw", "bpf"),
            environment=place.lab.environment,
        )
        prometheus = ServiceProgram(
            name="prometheus",
            arguments=(
                "prometheus",
                f"--config.file={place.directory / CONFIGURATION}",
                f"--storage.tsdb.path={place.own / 'data'}",
                f"--storage.tsdb.retention.time={RETENTION}",
                f"--storage.tsdb.retention.size={LARGEST}",
                f"--web.listen-address={place.address}:{PORT}",
                "--log.level=warn",
            ),
            user=USER,
        )
        return (exporter, prometheus)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="tcp", number=PORT),)

    def answer(self, place: Place) -> str | None:
        said = get_json(place.address, PORT, "/api/v1/query?query=up")
        if said is None or not is_bound("tcp", EXPORTER_PORT):
            return None
        found = [int(item["value"][1]) for item in said["data"]["result"]]
        return "nothing asked yet" if not found else f"{sum(found)} of {len(found)} targets up"


SERVICE = Telemetry()
