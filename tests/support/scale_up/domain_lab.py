"""A scale-up domain on this machine for tests: a switch in a namespace of its own, and all GPUs in another one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.linux.namespaces import in_namespace
from testbed.daemons.switchd.client import DomainSwitch
from testbed.daemons.switchd.description import SwitchDescription, SwitchPort
from testbed.protocols.scale_up.domain import build as scale_up_domain
from testbed.protocols.scale_up.domain.endpoint import Endpoint, Endpoints, Gpu, Spray
from testbed.protocols.scale_up.domain.host_gpus import HostGpus
from testbed.protocols.scale_up.domain.link import LinkSettings

MTU = 9200


def mac(gpu: int, plane: int, *, switch: bool) -> bytes:
    return bytes([0x02, 0x50, int(switch), gpu, plane, 1])


def _ip(*words: str, namespace: str = "") -> None:
    subprocess.run(["ip", *(("-n", namespace) if namespace else ()), *words], check=True, capture_output=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainLab:
    """The namespaces are there, the links are up, and the switch runs."""

    gpu_namespace: str
    switch_namespace: str
    description: SwitchDescription
    switch: DomainSwitch
    endpoints: Endpoints

    def settings(
        self,
        number: int,
        *,
        request_vc: int = 0,
        response_vc: int = 1,
        timeout_s: float = 5.0,
        spray: Spray = Spray.WEIGHTED,
        peer_window: int = 0,
    ) -> Gpu:
        """Return the settings of a GPU's end."""
        planes = range(self.description.planes)
        return Gpu(
            gpu=number,
            gpus=self.description.gpus,
            interfaces=[f"g{number}p{plane}" for plane in planes],
            addresses=[(mac(number, plane, switch=False), mac(number, plane, switch=True)) for plane in planes],
            link=self.description.link,
            plane_rates_bps=self.description.plane_rates_bps,
            request_vc=request_vc,
            response_vc=response_vc,
            timeout_s=timeout_s,
            spray=spray,
            peer_window=peer_window,
            switch=str(self.switch.run_directory),
        )

    def gpu(self, number: int, **settings: Any) -> Endpoint:
        """Open a GPU's end; `settings` are those of the method of this name."""
        gpu = self.settings(number, **settings)
        return in_namespace(self.gpu_namespace, lambda: self.endpoints.add(gpu))

    def start_switch(self) -> int:
        return self.switch.start(self.switch_namespace, self.description)


def host_gpus(lab: DomainLab, *, time_scale: float, rtt_ns: int) -> HostGpus:
    """Return what a lab of this time scale would tell a host of all the GPUs that it has."""
    description = lab.description
    lab_bps = description.planes * description.link.rate_bps
    return HostGpus(
        host="h1",
        domain="h1",
        library=lab.endpoints.library,
        time_scale=time_scale,
        rtt_ns=rtt_ns,
        rate_bps=round(lab_bps * time_scale),
        gpus=[lab.settings(number) for number in range(description.gpus)],
    )


@contextlib.contextmanager
def domain_lab(
    directory: Path,
    link: LinkSettings,
    *,
    gpus: int,
    planes: int,
    voq: bool = False,
    plane_rates_bps: Sequence[int] = (),
    name: str = "su",
) -> Iterator[DomainLab]:
    """A domain that is gone afterwards, whatever happens."""
    names = [f"{name}{os.getpid()}-{part}" for part in ("gpus", "switch")]
    ports = [(gpu, plane) for plane in range(planes) for gpu in range(gpus)]
    described = [
        SwitchPort(interface=f"g{gpu}p{plane}", mac=mac(gpu, plane, switch=True), peer=mac(gpu, plane, switch=False))
        for gpu, plane in ports
    ]
    description = SwitchDescription(
        gpus=gpus, planes=planes, link=link, ports=described, voq=voq, plane_rates_bps=plane_rates_bps
    )
    switch = DomainSwitch(run_directory=directory / "switch")
    made: list[str] = []
    try:
        for item in names:
            _ip("netns", "add", item)
            made.append(item)
        for gpu, plane in ports:
            port, ends = f"g{gpu}p{plane}", [mac(gpu, plane, switch=flag).hex(":") for flag in (False, True)]
            peer = ["peer", "name", port, "address", ends[1], "mtu", str(MTU), "netns", names[1]]
            link_words = ["link", "add", port, "address", ends[0], "mtu", str(MTU), "type", "veth", *peer]
            _ip(*link_words, namespace=names[0])
            for namespace in names:
                _ip("link", "set", port, "up", namespace=namespace)
        with Endpoints(scale_up_domain.build()) as endpoints:
            lab = DomainLab(
                gpu_namespace=names[0],
                switch_namespace=names[1],
                description=description,
                switch=switch,
                endpoints=endpoints,
            )
            lab.start_switch()
            yield lab
    finally:
        with contextlib.suppress(Exception):
            switch.stop()
        for item in made:
            _ip("netns", "del", item)
