"""The service `slurm`: Slurm, whose controller on the server starts users' batch jobs on the hosts of the fabric.

The server runs munged, which signs who asks, and slurmctld; every host runs a slurmd, which starts tasks in the host's
namespaces. All of them speak over the management network. munged is asked over a Unix socket, which knows no network
namespaces, so that one serves the daemons and the clients of all nodes of a lab.

A task sees the host's network, its name and the names of all others. What moves data binds addresses of data itself, as
NCCL does with NCCL_SOCKET_IFNAME and NCCL_IB_HCA.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from testbed.base.files import write_atomically
from testbed.lab.core.model.management import SLURM_CLIENT_PORTS, SLURMD_PORT
from testbed.lab.features.management.services.asking import is_bound, output_of
from testbed.lab.features.management.services.dns import hosts_file
from testbed.lab.features.management.services.service import File, Place, Port, Service, ServiceProgram, Surroundings

USER, MUNGE_USER = "slurm", "munge"
CONTROLLER_PORT = 6817
CONFIGURATION = "slurm.conf"
SPOOL = Path("/var/lib/slurm/slurmd")
"""The path at which every slurmd sees its own directory: paths of its sockets have the node's name, and would be too
long there."""
SILENT_S = 10
"""The time for which a slurmd may be silent until its node is DOWN, in seconds; Slurm's own default is 300."""
KEY_BYTES = 128
_WITHOUT_CGROUPS = (23, 11)
"""The first version that can be told to use no cgroups; those before use none where no plugin asks for them."""
_CAPABILITIES = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid"),
    *("net_bind_service", "net_raw", "sys_nice", "sys_resource"),
)


class Slurm(Service):
    name = "slurm"
    is_used = True
    needs = ("munged", "slurmctld", "slurmd", "sbatch")

    def prepare(self, lab: Surroundings) -> None:
        """Make the key by which the daemons of this lab know each other, and the directory of munged's socket."""
        found = pwd.getpwnam(MUNGE_USER)
        directory = munge_directory(lab)
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        directory.chmod(0o711)  # whatever our umask is: all users' clients go through it to the socket
        os.chown(directory, found.pw_uid, found.pw_gid)
        if not (key := directory / "key").exists():
            write_atomically(key, secrets.token_bytes(KEY_BYTES), mode=0o600, durable=False)
        os.chown(key, found.pw_uid, found.pw_gid)
        SPOOL.mkdir(mode=0o755, parents=True, exist_ok=True)

    def user(self, place: Place) -> str:
        return USER if place.is_server else ""

    def files(self, place: Place) -> Mapping[str, File]:
        lab = place.lab
        files = {
            CONFIGURATION: File(text=_configuration(place)),
            "topology.conf": File(text=topology(lab.hosts)),
            "hosts": File(text=f"127.0.0.1 localhost\n{hosts_file(lab)}"),
        }
        if version() >= _WITHOUT_CGROUPS:
            files["cgroup.conf"] = File(text="CgroupPlugin=disabled\n")
        return files

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        configuration = str(place.directory / CONFIGURATION)
        if not place.is_server:
            daemon = ServiceProgram(
                name="slurmd",
                arguments=("slurmd", "-D", "-N", place.node, "-f", configuration),
                # It becomes the user of each task, and a task of root's has what it has.
                capabilities=_CAPABILITIES,
                hostname=True,
                binds={"/etc/hosts": "hosts", str(SPOOL): "own"},
                environment=clients_environment(place),
            )
            return (daemon,)
        directory = munge_directory(place.lab)
        munged = ServiceProgram(
            name="munged",
            arguments=(
                *("munged", "--foreground", f"--socket={socket(place.lab)}", f"--key-file={directory / 'key'}"),
                *(f"--pid-file={directory / 'pid'}", f"--seed-file={directory / 'seed'}"),
                f"--origin={place.address}",
            ),
            user=MUNGE_USER,
        )
        controller = ServiceProgram(
            name="slurmctld",
            arguments=("slurmctld", "-D", "-i", "-f", configuration),
            user=USER,
            hostname=True,
            binds={"/etc/hosts": "hosts"},
            environment=clients_environment(place),
        )
        return (munged, controller)

    def environment(self, place: Place) -> Mapping[str, str]:
        """Return where clients find their cluster, and jobs that they submit this package and this lab."""
        ours = {name: value for name, value in place.lab.environment.items() if name != "PATH"}
        return ours | clients_environment(place)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="tcp", number=CONTROLLER_PORT if place.is_server else SLURMD_PORT),)

    def answer(self, place: Place) -> str | None:
        if not is_bound("tcp", self.ports(place)[0].number):  # a connection without a message is an error in its log
            return None
        if not place.is_server:
            return "starts tasks"
        asked = ["env", f"SLURM_CONF={place.directory / CONFIGURATION}", "sinfo", "-h", "-N", "-o", "%N %T"]
        said = output_of(asked)
        return None if said is None else states_of_nodes(said)


def clients_environment(place: Place) -> dict[str, str]:
    """Return where Slurm's clients on a node find their cluster."""
    return {"SLURM_CONF": str(place.lab.directory / place.node / Slurm.name / CONFIGURATION)}


def munge_directory(lab: Surroundings) -> Path:
    """Return where munged has its socket and its key, which is readable for its user alone."""
    return lab.directory / f".{Slurm.name}"


def socket(lab: Surroundings) -> Path:
    """Return the socket of a lab's munged."""
    return munge_directory(lab) / "s"


def states_of_nodes(listed: str) -> str | None:
    """Count nodes by state in what `sinfo -h -N -o "%N %T"` lists; None while the state of one is unknown."""
    states = {}
    for line in listed.splitlines():
        node, _, state = line.strip().partition(" ")
        states[node] = state.rstrip("*~#!%$@^-+")  # what is the matter beside it, such as that it does not respond
    if not states or "unknown" in states.values():
        return None
    return ", ".join(f"{count} {state}" for state, count in sorted(Counter(states.values()).items()))


@cache
def version() -> tuple[int, int]:
    """Return the installed Slurm's version, such as (22, 5); (0, 0) where there is none."""
    said = output_of(["slurmd", "-V"])
    found = None if said is None else re.search(r"(\d+)\.(\d+)", said)
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def topology(hosts: Mapping[str, tuple[str, ...]]) -> str:
    """The text of topology.conf: hosts on the switch of their first NIC, and one switch above these (topology.conf(5)).

    Slurm places a job on as few of these switches as it can.
    """
    below: dict[str, list[str]] = {}
    for host, switches in hosts.items():
        if switches:
            below.setdefault(switches[0], []).append(host)
    lines = [f"SwitchName={switch} Nodes={','.join(nodes)}" for switch, nodes in below.items()]
    if len(below) > 1:
        lines.append(f"SwitchName=fabric Switches={','.join(below)}")
    return "".join(f"{line}\n" for line in lines)


def _configuration(place: Place) -> str:
    lab = place.lab
    state = lab.directory / lab.server / Slurm.name / "own"
    tree = bool(topology(lab.hosts))
    lines = [
        f"ClusterName={lab.lab}",
        f"SlurmctldHost={lab.server}({lab.server_address})",
        f"SlurmctldPort={CONTROLLER_PORT}",
        f"SlurmdPort={SLURMD_PORT}",
        f"SrunPortRange={SLURM_CLIENT_PORTS[0]}-{SLURM_CLIENT_PORTS[-1]}",
        "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
        f"SlurmUser={USER}",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={socket(lab)}",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/linear",
        *(["TopologyPlugin=topology/tree"] if tree else []),
        "TreeWidth=65533",  # the controller speaks to each slurmd itself
        "SchedulerParameters=sched_min_interval=0,batch_sched_delay=0",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        f"SlurmdTimeout={SILENT_S}",
        "MessageTimeout=5",
        "MpiDefault=none",
        "MailProg=/bin/true",
        f"StateSaveLocation={state}",
        f"SlurmctldPidFile={state / 'slurmctld.pid'}",
        f"SlurmdSpoolDir={SPOOL}",
        f"SlurmdPidFile={SPOOL / 'slurmd.pid'}",
    ]
    for host, switches in lab.hosts.items():
        lines.append(f"NodeName={host} NodeAddr={lab.addresses[host]} CPUs={max(1, len(switches))} State=UNKNOWN")
    lines.append(f"PartitionName=hosts Nodes={','.join(lab.hosts)} Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


SERVICE = Slurm()
