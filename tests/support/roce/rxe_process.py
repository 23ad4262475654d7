"""A process of `rxe_driver.py` in the network namespace of a device, asked over its pipes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).with_name("rxe_driver.py")
END_TIMEOUT_S = 30.0


class RxeProcess:
    """One device of soft RDMA and a buffer of `size` bytes there, registered for everything."""

    def __init__(self, device: str, namespace: str, size: int) -> None:
        argv = ["nsenter", f"--net=/run/netns/{namespace}", "/usr/bin/python3", str(DRIVER), device, str(size)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._input, self.output = self.process.stdin, self.process.stdout
        self._before: dict[str, int] = {}

    def start(self) -> None:
        """Wait until it answers, and begin to count."""
        memory = self.ask("memory")
        self.address, self.rkey = memory["address"], memory["rkey"]
        self._before = self.counted()

    def begin(self, what: str, **arguments: Any) -> None:
        """Ask without waiting."""
        self._input.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        self._input.flush()

    def read(self) -> dict[str, Any]:
        """The next answer, however long it takes."""
        line = self.output.readline()
        assert line, f"rxe's driver has ended: {self.process.wait(END_TIMEOUT_S)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to what was asked last."""
        return self.read()

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        self.begin(what, **arguments)
        answer = self.answer()
        assert "error" not in answer, answer["error"]
        return answer

    def counted(self) -> dict[str, int]:
        """Return the device's counters since the start."""
        counters: dict[str, int] = self.ask("counters")["counters"]
        return {name: value - self._before.get(name, 0) for name, value in counters.items()}

    def close(self) -> None:
        self._input.close()
        self.process.wait(END_TIMEOUT_S)
        self.output.close()
