"""Targets and the initiator's tool as processes in network namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NQN = "nqn.2026-01.lab:st1"
HOSTNQN = "nqn.2026-01.lab:h1"
PATIENCE_S = 60


def inside(namespace: str, *argv: str, **options: Any) -> subprocess.Popen[str]:
    """A program in a namespace, with pipes."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(["ip", "netns", "exec", namespace, *argv], **(pipes | options))


class RunningTarget:
    """A target process that listens."""

    def __init__(self, namespace: str, document: Mapping[str, Any]) -> None:
        argv = (sys.executable, "-m", "testbed.endpoints.storage.target", "--config", "-")
        self.process = inside(namespace, *argv, stdin=subprocess.PIPE)
        self.process.stdin.write(json.dumps(document))
        self.process.stdin.close()
        self.process.stdin = None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        self.listening = json.loads(line)["listening"]

    @property
    def resident_bytes(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * 4096

    def kill(self) -> None:
        """SIGKILL, and reaped."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> dict[str, int]:
        """SIGTERM; return what it has counted."""
        self.process.terminate()
        out, problem = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, problem
        counts: dict[str, int] = json.loads(out)["counts"]
        return counts


@contextmanager
def target(namespace: str, document: Mapping[str, Any]) -> Iterator[RunningTarget]:
    """A target that is killed at the end, unless it has ended before."""
    running = RunningTarget(namespace, document)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def start_tool(namespace: str, operation: str, *words: str) -> subprocess.Popen[str]:
    argv = (
        sys.executable,
        "-m",
        "testbed.endpoints.storage.initiator",
        operation,
        "--json",
        "--hostnqn",
        HOSTNQN,
        *words,
    )
    return inside(namespace, *argv)


def outcome(process: subprocess.Popen[str]) -> tuple[int, Any]:
    """The exit status and the document of the tool; its words where it has no document."""
    out, problem = process.communicate(timeout=PATIENCE_S)
    return process.returncode, json.loads(out) if out else problem


def run_tool(namespace: str, operation: str, *words: str) -> tuple[int, Any]:
    return outcome(start_tool(namespace, operation, *words))
