"""The transport `libfabric`: programs over libfabric send over our UET, by a provider that is loaded into them.

Processes of ours, as few as keep up (`testbed.lab.core.plan.user_space.processes`), have the endpoints of the ranks'
NICs for as long as the ranks run (`testbed.endpoints.libfabric`); a rank reaches that of its host by a Unix socket
below the lab's run directory, beside which the provider lies.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING

from testbed.base.cleanup import closed_at_end
from testbed.base.errors import CapabilityError, DriverError, PlanError
from testbed.base.linux.namespaces import NETNS_DIRECTORY
from testbed.base.typed_json import encode
from testbed.daemons.kit import lock
from testbed.daemons.kit.line_process import LineProcess, stop_all
from testbed.endpoints.libfabric.library import FILE_NAME, provider_library
from testbed.endpoints.libfabric.settings import HostSettings, ProviderSettings, RailSettings
from testbed.lab.core.deploy.node_files import libfabric_directory
from testbed.lab.core.model import NETNS
from testbed.lab.core.plan.user_space.processes import serving_processes
from testbed.lab.core.plan.user_space.uet import UetEndpointSettings
from testbed.run.launch.options import LaunchRefused

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.plan.lab_plan import PortPlan

PROVIDER = "uet"
"""The name by which libfabric knows it."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0
_JOBS = 1 << 24
_SENT_AGAIN = "packets-again"
_MODULE, _NAME, _LOG = "testbed.endpoints.libfabric", "process of the libfabric provider", "provider.log"


@contextlib.contextmanager
def serve_provider(lab: RunningLab, nics: Sequence[PortPlan]) -> Iterator[ServedProvider]:
    """Serve programs on the hosts of some NICs by endpoints at these NICs; leaving it ends them.

    Raises `CapabilityError` for containers that do not see it, and where clang or libfabric's headers are missing;
    `LaunchRefused` where others have the endpoints of this lab, or no path leads from one NIC to another;
    `DriverError` where an endpoint cannot be opened.
    """
    library = provider_library()
    with _own_directory(lab) as directory:
        provider = directory / "provider"
        provider.mkdir(mode=0o755, exist_ok=True)
        shutil.copy(library, provider / FILE_NAME)
        _require_containers_see(lab, nics, provider / FILE_NAME)
        processes: list[LineProcess] = []
        try:
            for settings in _settings(lab, nics, directory):
                process = LineProcess(_MODULE, _NAME, operation="libfabric", log=directory / _LOG)
                processes.append(process)
                process.tell(encode(settings))
            for process in processes:
                process.await_ready(START_TIMEOUT_S, hint="another program may have the UET endpoint of a host")
            yield ServedProvider(directory, processes)
        finally:
            stop_all(processes, STOP_TIMEOUT_S)
            for socket in directory.glob("*.sock"):  # of a process that was killed
                socket.unlink(missing_ok=True)
            shutil.rmtree(provider, ignore_errors=True)


@contextlib.contextmanager
def _own_directory(lab: RunningLab) -> Iterator[Path]:
    """The directory of the sockets. One launch has it at a time: each NIC has one endpoint."""
    directory = libfabric_directory(lab.processes_directory)
    held = lock.hold(directory / "lock", create=True)
    if held is None:
        raise LaunchRefused(
            f"another launch has the endpoints of {lab.name}", hint="wait for its end, or use --transport tcp"
        )
    with closed_at_end(held):
        yield directory


def _require_containers_see(lab: RunningLab, nics: Sequence[PortPlan], file: Path) -> None:
    """Raise `CapabilityError` for a container without our directory, as those of an older testbed's deploy are."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    asked = {
        node: lab.spawn(node, ["test", "-e", str(file)], **quiet)
        for node in dict.fromkeys(nic.node for nic in nics)
        if lab.node(node).runtime != NETNS
    }
    blind = [node for node, process in asked.items() if process.wait()]
    if blind:
        raise CapabilityError(
            f"{blind[0]} is a container that does not see {file}, the provider of libfabric",
            missing="a container that was started by this testbed",
            hint="deploy the lab again; or use another transport (tcp, uet, roce)",
        )


def _settings(lab: RunningLab, nics: Sequence[PortPlan], directory: Path) -> list[ProviderSettings]:
    """The settings of each process: hosts take turns."""
    plan = UetEndpointSettings(lab.model, lab.plan)
    hosts: dict[str, list[RailSettings]] = {}
    for nic in nics:
        try:
            delays_ns, least_rtts_ns = plan.delays_ns(nic, nics), plan.least_rtts_ns(nic, nics)
        except PlanError as error:
            raise LaunchRefused(
                str(error), hint="ranks on NICs that reach each other: see `testbed inspect`"
            ) from error
        rail = RailSettings(
            name=nic.name,
            address=str(nic.addresses[0]),
            config=dict(plan.config(nic)),
            delays_ns=delays_ns,
            least_rtts_ns=least_rtts_ns,
        )
        hosts.setdefault(nic.node, []).append(rail)
    served = [
        HostSettings(
            name=host,
            namespace=str(NETNS_DIRECTORY / lab.namespace(host)),
            socket=str(directory / f"{host}.sock"),
            rails=tuple(rails),
        )
        for host, rails in hosts.items()
    ]
    count = serving_processes(nics)
    job_id = 1 + randbelow(_JOBS - 1)
    tick_ns = plan.times.serving_tick_ns(nics)
    return [
        ProviderSettings(
            hosts=tuple(served[number::count]),
            job_id=job_id,
            dscp=plan.dscp,
            control_dscp=plan.control_dscp,
            tick_ns=tick_ns,
        )
        for number in range(count)
    ]


class ServedProvider:
    """The processes that serve a launch (`testbed.run.launch.transports.Served`)."""

    def __init__(self, directory: Path, processes: Sequence[LineProcess]) -> None:
        self._directory = directory
        self._processes = processes
        self.watched: Mapping[str, int] = {
            f"the libfabric provider's process {number}": process.pidfd for number, process in enumerate(processes)
        }

    def environment(self, nic: PortPlan) -> Mapping[str, str]:
        """Return what has libfabric, and MPI over it, use the provider."""
        return {
            "FI_PROVIDER": PROVIDER,
            "FI_PROVIDER_PATH": str(self._directory / "provider"),
            "LAB_UET_SOCKET": str(self._directory),
            "LAB_UET_RAIL": nic.name,
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "OMPI_MCA_pml": "cm",
            "OMPI_MCA_mtl": "ofi",
            "OMPI_MCA_mtl_ofi_provider_include": PROVIDER,
        }

    @property
    def pids(self) -> Sequence[int]:
        """Return the IDs of the processes."""
        return [process.process.pid for process in self._processes]

    def counters(self) -> Mapping[str, int]:
        """Return what was counted at all endpoints together. Raises `DriverError` where a process does not answer."""
        found: Counter[str] = Counter()
        for process in self._processes:
            process.tell(b"counters")
            found.update({name: int(number) for name, number in process.hear(ANSWER_TIMEOUT_S).items()})
        return dict(found)

    def sent_again(self) -> int | None:
        """Return the packets that were sent again; None where a process has ended."""
        try:
            return self.counters().get(_SENT_AGAIN, 0)
        except DriverError:
            return None
