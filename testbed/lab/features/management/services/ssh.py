"""The service `ssh`: OpenSSH's server on every node, which lets in who has the lab's key, as root of that node.

Keys are made for the lab: one that logs in, and one of each node, by which a client knows it. A log-in has the node's
network, its name and its resolver. It is root with the capabilities that work on a network needs and no other: it
cannot enter another namespace, mount, load a module or trace. Files are this machine's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from testbed.base.files import write_atomically
from testbed.base.linux.vty import OWN_CONFIGURATION, OWN_RUN_DIRECTORY, shell_directory
from testbed.lab.core.deploy.node_files import HOSTS, hosts_path, no_daemons
from testbed.lab.features.management.services import aaa, connect
from testbed.lab.features.management.services.asking import greeting
from testbed.lab.features.management.services.service import File, Place, Port, Service, ServiceProgram, Surroundings
from testbed.lab.features.management.services.slurm import clients_environment

PORT = 22
CONFIGURATION = "ssh_config"
_CAPABILITIES = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "sys_chroot"),
    *("net_admin", "net_bind_service", "net_raw"),
    "audit_write",  # of a log-in at a terminal, without which sshd ends it
)
_BY_KEY = ("UsePAM no", "AuthenticationMethods publickey", "PermitRootLogin prohibit-password", "AllowUsers root")
"""Nobody but root comes in, and with the lab's key alone."""
_SEPARATION = "/run/sshd"
"""sshd's directory for the process that speaks with strangers; it is empty, and root's."""


class Ssh(Service):
    name = "ssh"
    is_used = True
    needs = ("sshd", "ssh")

    def prepare(self, lab: Surroundings) -> None:
        directory = _shared(lab)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_key(directory / "id", f"root@{lab.lab}")
        for node in lab.served:
            _make_key(directory / f"host-{node}", node)
        known = "".join(f"{node} {(directory / f'host-{node}.pub').read_text()}" for node in lab.served)
        (directory / "known_hosts").write_text(known)
        Path(_SEPARATION).mkdir(mode=0o755, exist_ok=True)  # the package makes it when its own sshd is started

    def files(self, place: Place) -> Mapping[str, File]:
        shared = _shared(place.lab)
        lines = [
            f"ListenAddress {place.address}:{PORT}",
            f"HostKey {shared / f'host-{place.node}'}",
            f"AuthorizedKeysFile {shared / 'id.pub'}",
            "StrictModes no",
            "UseDNS no",
            "KexAlgorithms curve25519-sha256",  # the default one costs a log-in a tenth of a second
            "PidFile none",
            "PrintMotd no",
            "PrintLastLog no",
            "X11Forwarding no",
            "AllowAgentForwarding no",
            "Subsystem sftp internal-sftp",
        ]
        if place.has("slurm"):
            lines += [f"SetEnv {name}={value}" for name, value in clients_environment(place).items()]
        asks = aaa.asks(place)
        lines += ["UsePAM yes", *aaa.sshd_lines(place)] if asks else _BY_KEY
        files = {
            "sshd_config": File(text="\n".join(lines) + "\n"),
            # Without PAM, sshd lets nobody in whose password is locked, as that of root often is.
            "shadow": File(text="root:*:1:0:99999:7:::\n", secret=True),
        }
        if asks:
            files |= aaa.switch_files(place)
        if "dns" in place.lab.services:
            text = f"nameserver {place.lab.server_address}\nsearch {place.lab.lab}\noptions timeout:1\n"
            files["resolv.conf"] = File(text=text)
        return files

    def programs(self, place: Place) -> tuple[ServiceProgram, ...]:
        binds = {"/etc/shadow": "shadow", str(HOSTS): str(hosts_path(place.lab.run))}
        if place.node in place.lab.routing:
            directory = place.lab.run / place.node
            binds |= {str(OWN_RUN_DIRECTORY): str(directory), str(OWN_CONFIGURATION): str(shell_directory(directory))}
        elif OWN_RUN_DIRECTORY.is_dir() and (own := no_daemons(place.lab.run, place.node)).is_dir():
            binds[str(OWN_RUN_DIRECTORY)] = str(own)
        if "dns" in place.lab.services:
            binds["/etc/resolv.conf"] = "resolv.conf"
        if aaa.asks(place):
            binds |= aaa.switch_binds()
        program = ServiceProgram(
            name="sshd",
            arguments=("/usr/sbin/sshd", "-D", "-e", "-f", str(place.directory / "sshd_config")),
            capabilities=_CAPABILITIES,
            hostname=True,
            binds=binds,
            scratch=(_SEPARATION,),
        )
        return (program,)

    def ports(self, place: Place) -> tuple[Port, ...]:
        return (Port(kind="tcp", number=PORT),)

    def answer(self, place: Place) -> str | None:
        said = greeting(place.address, PORT, prefix=b"SSH-2.0-")
        return said if said is None or not aaa.asks(place) else f"{aaa.said_of(place)}; {said}"

    def for_people(self, lab: Surroundings) -> Mapping[str, str]:
        """`ssh -F testbed-LAB/ssh_config NODE`, from this machine; the server's namespace is on the way."""
        shared = _shared(lab)
        netns = f"/run/netns/{lab.namespaces[lab.server]}"
        blocks = [
            "# ssh -F this-file NODE, as root of this machine: the way goes by the server of the management network.",
            "Host *",
            "    User root",
            f"    IdentityFile {shared / 'id'}",
            "    IdentitiesOnly yes",
            f"    UserKnownHostsFile {shared / 'known_hosts'}",
            "    StrictHostKeyChecking yes",
            "    LogLevel ERROR",
            f"    ProxyCommand nsenter --net={netns} {sys.executable} -I -S {connect.__file__} %h %p",
            "    ProxyUseFdpass yes",
        ]
        for node in lab.served:
            blocks += [f"Host {node}", f"    HostName {lab.addresses[node]}", f"    HostKeyAlias {node}"]
        return {CONFIGURATION: "\n".join(blocks) + "\n"}


def _shared(lab: Surroundings) -> Path:
    """Return where the keys are: root's alone, for they open every node."""
    return lab.directory / f".{Ssh.name}"


def _make_key(path: Path, comment: str) -> None:
    """Make a pair of keys, `path` and `path`.pub, unless there is one."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    if path.exists():
        return
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    path.with_name(f"{path.name}.pub").write_text(f"{public} {comment}\n")
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_atomically(path, secret, mode=0o600, durable=False)


SERVICE = Ssh()
