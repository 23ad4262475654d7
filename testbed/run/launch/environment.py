"""The environment that tells a rank who it is, how it finds the others, and which of its host's interfaces is its rail.

Each family of libraries has variables of its own, and those of all families are set: a program takes what it knows. A
rank's own variables (`LAB_...`) say the same without any library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from types import MappingProxyType

from testbed.run.launch.ranks import RankPlace

REMOTE_SHELL = "lab_rsh"
"""Our program that starts a command on another host of the lab, where MPI's launchers would take ssh."""
LAUNCH_VARIABLE = "LAB_LAUNCH"
"""The variable by which whatever a launch started is known, whatever has become of its parents."""
FIRST_PORT, PORTS = 20_000, 10_000
"""The TCP ports at which rank 0 may listen for the others: below those that the kernel gives out (32768 and up)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRanks:
    """The ranks of one program on a lab with the time scale `k`; `launch` is the launch's own name."""

    lab: str
    k: float
    launch: str
    places: Sequence[RankPlace]

    @property
    def port(self) -> int:
        """The TCP port at which rank 0 waits for the others; that of JAX is the one above."""
        return FIRST_PORT + int(self.launch[-8:], 16) % PORTS // 2 * 2


def environment_of(ranks: ProgramRanks, place: RankPlace) -> dict[str, str]:
    """Return the variables of a rank, of all families."""
    found: dict[str, str] = {}
    for family in FAMILIES.values():
        found |= family(ranks, place)
    return found


def _lab(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """A program of one's own, which has no library to be told by."""
    return {
        "LAB_NAME": ranks.lab,
        "LAB_HOST": place.host,
        "LAB_RAIL": place.nic.name,
        "LAB_ADDRESS": str(place.address),
        "LAB_RANK": str(place.rank),
        "LAB_SIZE": str(len(ranks.places)),
        "LAB_PEERS": ",".join(str(each.address) for each in ranks.places),
        "LAB_K": f"{ranks.k:g}",
        LAUNCH_VARIABLE: ranks.launch,
    }


def _torch(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """PyTorch's `env://`, as torchrun sets it, and the interfaces of Gloo and TensorPipe."""
    hosts = list(dict.fromkeys(each.host for each in ranks.places))
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(len(ranks.places)),
        "LOCAL_RANK": str(place.local),
        "LOCAL_WORLD_SIZE": str(place.hosts_ranks),
        "GROUP_RANK": str(hosts.index(place.host)),
        "MASTER_ADDR": str(ranks.places[0].address),
        "MASTER_PORT": str(ranks.port),
        "GLOO_SOCKET_IFNAME": place.nic.name,
        "TP_SOCKET_IFNAME": place.nic.name,
    }


def _nccl(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """NCCL and RCCL over sockets; "=" asks for this very name."""
    del ranks
    return {"NCCL_SOCKET_IFNAME": f"={place.nic.name}", "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}


def _libfabric(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """libfabric (fi_tcp(7)), below MPICH, Intel MPI and OpenMPI."""
    del ranks
    return {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": place.nic.name, "FI_SOCKETS_IFACE": place.nic.name}


def _ucx(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """UCX, below MPICH and OpenMPI; what is on one host goes by shared memory.

    It takes an interface for one that leads to an address by the main routing table alone, where the first NIC has the
    default route: ranks on several rails have all of these, their own first.
    """
    rails = dict.fromkeys((place.nic.name, *(each.nic.name for each in ranks.places)))
    return {"UCX_NET_DEVICES": ",".join(rails), "UCX_TLS": "tcp,self,sm"}


def _mpich(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """MPICH's mpiexec (Hydra), where the program is one: it starts its proxies on other hosts by our shell."""
    del ranks
    return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": remote_shell(), "HYDRA_IFACE": place.nic.name}


def _openmpi(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """OpenMPI's mpirun, version 4 (orte) and 5 (PRRTE), where the program is one, and its TCP."""
    del ranks
    return {
        "OMPI_MCA_btl_tcp_if_include": place.nic.name,
        "OMPI_MCA_oob_tcp_if_include": place.nic.name,
        "OMPI_MCA_plm_rsh_agent": remote_shell(),
        "PRTE_MCA_plm_ssh_agent": remote_shell(),
        "PRTE_MCA_prte_if_include": place.nic.name,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def _jax(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """JAX's `jax.distributed.initialize`, whose collectives between CPUs are Gloo's."""
    address = ranks.places[0].address
    host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
    return {
        "JAX_COORDINATOR_ADDRESS": f"{host}:{ranks.port + 1}",
        "JAX_NUM_PROCESSES": str(len(ranks.places)),
        "JAX_PROCESS_ID": str(place.rank),
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    }


def _threads(ranks: ProgramRanks, place: RankPlace) -> Mapping[str, str]:
    """One thread a rank, since all of them share the CPUs of one machine; and output as it comes."""
    del ranks, place
    return {
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        "PYTHONUNBUFFERED": "1",
    }


FAMILIES: Mapping[str, Callable[[ProgramRanks, RankPlace], Mapping[str, str]]] = MappingProxyType(
    {
        "lab": _lab,
        "torch": _torch,
        "NCCL": _nccl,
        "libfabric": _libfabric,
        "UCX": _ucx,
        "MPICH": _mpich,
        "OpenMPI": _openmpi,
        "JAX": _jax,
        "threads": _threads,
    }
)
"""The variables of each family of libraries, by its name."""


def remote_shell() -> str:
    """Return the path of `lab_rsh`, which is installed beside our interpreter."""
    return str(Path(sys.executable).with_name(REMOTE_SHELL))
