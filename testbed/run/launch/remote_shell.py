"""The program `lab_rsh`: starts a command on another host of a lab, for MPI's launchers, which take it for ssh.

    mpiexec -launcher ssh -launcher-exec lab_rsh -iface rail1 -hosts p1-s1-h1,p1-s2-h1 ./program
    mpirun --prtemca plm_ssh_agent lab_rsh --host p1-s1-h1,p1-s2-h1 ./program

It is called inside of a host, and takes options and arguments of ssh(1). It knows its lab by `LAB_NAME`, or by the
network namespace that it finds itself in. It becomes the command, in the namespaces of the host that is meant: signals
and standard input are the command's.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.base.errors import TestbedError
from testbed.base.linux.namespaces import own_identity
from testbed.base.linux.processes import become, search_path
from testbed.base.names import all_names_hint
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.node_files import hosts_path
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.deploy.records.state import StateDirectory

FAILED = 255
"""The exit code of ssh for an error of its own."""
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
"""Options of ssh(1) that have a value."""
_OF_A_RANK = ("RANK", "LOCAL_RANK", "GROUP_RANK", "LAB_RANK", "LAB_ADDRESS", "LAB_RAIL", "JAX_PROCESS_ID", "PMI_FD")
"""Variables that say who the caller is, and not who it starts."""


class ShellRefused(TestbedError):
    """A command that cannot be started on another host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCommand:
    """The command that is asked for, as one line for a shell, and the host as it was named."""

    host: str
    line: str


def parse_arguments(arguments: Sequence[str]) -> RemoteCommand:
    """Take apart what ssh would be called with: options, [user@]host, command. Raises `ShellRefused`."""
    words = list(arguments)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "--":
            break
        if len(option) == 2 and option[1] in _WITH_VALUE and words:
            words.pop(0)
    if len(words) < 2:
        raise ShellRefused("no host, or no command", hint="lab_rsh HOST COMMAND...")
    return RemoteCommand(host=words[0].rpartition("@")[2], line=" ".join(words[1:]))


def find_host(named: str, nodes: Iterable[str], hosts_file: str) -> str:
    """Return the node that a name means: its own, with the lab or an interface beside it, or one of its addresses.

    `hosts_file` has all addresses with their names (hosts(5)). Raises `ShellRefused`.
    """
    known = set(nodes)
    for word in (named, named.partition(".")[0], named.rpartition(".")[2]):
        if word in known:
            return word
    for line in hosts_file.splitlines():
        address, *names = line.split()
        if address == named:
            for word in names:
                if (node := word.rpartition(".")[2]) in known:
                    return node
                if (node := word.partition(".")[0]) in known:
                    return node
    raise ShellRefused(f"no host is called {named!r}", hint=all_names_hint(named, sorted(known)))


def environment_there(ours: Mapping[str, str], lab: RunningLab, node: str) -> dict[str, str]:
    """Return our environment as a program has it on another host: MPI's launchers say the rest themselves."""
    kept = {key: value for key, value in ours.items() if key not in _OF_A_RANK}
    return kept | {"PATH": search_path(), "LAB_NAME": lab.name, "LAB_HOST": node} | lab.environment(node)


def lab_here(state: StateDirectory, name: str | None) -> RunningLab:
    """Open the lab of this name, or the one in whose node this process is. Raises `ShellRefused`."""
    if name:
        return RunningLab.open(name, state)
    here = own_identity()
    for each in state.names():
        if here in Journal(state.lab_directory(each)).read().identities.values():
            return RunningLab.open(each, state)
    raise ShellRefused("this is no node of a lab", hint="call it in a node: testbed exec NODE -- ..., or set LAB_NAME")


def main() -> int:
    """Become the command, or say why not and return the exit code of ssh for that."""
    try:
        command = parse_arguments(sys.argv[1:])
        lab = lab_here(StateDirectory(), os.environ.get("LAB_NAME"))
        names = hosts_path(lab.processes_directory)
        node = find_host(command.host, lab.hosts, names.read_text() if names.exists() else "")
        argv = ["/bin/sh", "-c", command.line]
        if lab.runtime(node) is not None:
            return _wait(lab, node, argv)
        become(lab.namespace(node), argv, view=lab.view(node), env=environment_there(os.environ, lab, node))
    except (TestbedError, OSError) as error:
        print(f"lab_rsh: {error}", file=sys.stderr)
    return FAILED


def _wait(lab: RunningLab, node: str, argv: Sequence[str]) -> int:
    """Start a command in a container, hand signals on, and return its exit code."""
    process = lab.spawn(node, argv, env={"LAB_NAME": lab.name, "LAB_HOST": node})
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda received, _: process.send_signal(received))
    status = process.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
