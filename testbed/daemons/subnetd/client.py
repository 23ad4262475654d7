"""Starting the wires of a subnet, telling them of links and tables, and asking how they do."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.files import write_atomically
from testbed.base.linux.processes import last_line
from testbed.daemons.kit import configuration
from testbed.daemons.kit.client import ask
from testbed.daemons.kit.process import start_module, start_ready
from testbed.daemons.subnetd.adapters import socket_name
from testbed.daemons.subnetd.description import WiresDescription
from testbed.daemons.subnetd.errors import WiresError, WiresMissing
from testbed.daemons.subnetd.process import DESCRIPTION_NAME, SOCKET_NAME, SUBNET_NAME
from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.subnet import Subnet

START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0
LOG_NAME = "wires.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetWires:
    """The wires of one subnet, by their run directory, which is their own. Methods raise `WiresError`, and
    `WiresMissing` where they do not run."""

    run_directory: Path

    def start(self, namespace: str, description: WiresDescription, subnet: Subnet) -> int:
        """Start them in a published namespace and wait until HCAs can be opened; their process id comes back."""
        binding.build()  # here, where someone can be told that there is no compiler
        self.run_directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        configuration.write(self.run_directory / DESCRIPTION_NAME, description)
        self._write(subnet)

        def spawn(ready: int) -> subprocess.Popen[bytes]:
            arguments = ["--ready-fd", str(ready)]
            module = "testbed.daemons.subnetd"
            return start_module(module, self.run_directory, LOG_NAME, arguments, [ready], namespace=namespace)

        try:
            pid, ended = start_ready(spawn, START_TIMEOUT_S)
        except TimeoutError:
            message = f"the wires of the subnet do not start within {START_TIMEOUT_S:g} s"
            raise WiresError(message, hint=self._log) from None
        if ended is not None:
            reason = last_line(self.run_directory / LOG_NAME)
            raise WiresMissing(f"the wires of the subnet ended at their start: {reason}".rstrip(": "), hint=self._log)
        return pid

    def _write(self, subnet: Subnet) -> None:
        write_atomically(self.run_directory / SUBNET_NAME, subnet.to_json(), durable=False)

    def status(self) -> dict[str, Any]:
        """Return what they say of themselves: time scale, tables, what was lost, and what each HCA has counted."""
        return self._ask("status")

    def is_running(self) -> bool:
        """Tell whether they answer."""
        try:
            self.status()
        except WiresError:
            return False
        return True

    def set_link(self, node: str, port: int, *, up: bool) -> None:
        """Take the link at a port down, with what is on it, or bring it up."""
        self._ask("set_link", node=node, port=port, up=up)

    def set_tables(self, subnet: Subnet) -> None:
        """Put the tables of a subnet in force."""
        self._write(subnet)
        self._ask("tables")

    def subnet(self) -> Subnet:
        """Return the subnet whose tables they were told last. Raises `WiresMissing`."""
        try:
            return Subnet.from_json((self.run_directory / SUBNET_NAME).read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WiresMissing(f"no subnet was told to the wires: {error}", hint=self._log) from error

    def adapter(self, hca: str) -> Path:
        """Return the socket of an HCA, which a program may open (`testbed.endpoints.infiniband`)."""
        return self.run_directory / socket_name(hca)

    @property
    def _log(self) -> str:
        return f"see {self.run_directory / LOG_NAME}"

    def _ask(self, command: str, **fields: Any) -> dict[str, Any]:
        try:
            answer = ask(self.run_directory, SOCKET_NAME, {"command": command, **fields}, ANSWER_TIMEOUT_S)
        except EOFError as error:
            raise WiresMissing("the wires of the subnet ended while they were asked", hint=self._log) from error
        except TimeoutError as error:
            raise WiresError(f"the wires of the subnet do not answer {command}", hint=self._log) from error
        except OSError as error:
            raise WiresMissing(f"no wires of the subnet answer: {error.strerror}", hint=self._log) from error
        if not answer.pop("ok"):
            raise WiresError(answer["error"], hint=answer["hint"])
        return answer
