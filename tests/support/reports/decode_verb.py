"""The verb `decode` over frames that a test has made."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import capture_files
import pytest

from testbed.cli.nodes.packets import print_flows, print_packets
from testbed.cli.options import Format


class Decode:
    """Runs over a file, or over frames that it writes to one. `said` is what the last run said beside its output."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.said = ""
        self._capsys = capsys

    @property
    def counted(self) -> dict[str, Any]:
        """What the last run in JSON counted."""
        found: dict[str, Any] = json.loads(self.said)
        return found

    def file(self, frames: Sequence[bytes], **options: Any) -> str:
        self.path.write_bytes(capture_files.pcap(frames, **options))
        return str(self.path)

    def lines(self, frames: Sequence[bytes] | str, **options: Any) -> list[str]:
        print_packets(self._file(frames), Format.TABLE, **options)
        return self._output().splitlines()

    def documents(self, frames: Sequence[bytes] | str, **options: Any) -> list[dict[str, Any]]:
        print_packets(self._file(frames), Format.JSON, **options)
        return [json.loads(line) for line in self._output().splitlines()]

    def flows(self, frames: Sequence[bytes] | str, **options: Any) -> list[dict[str, Any]]:
        print_flows(self._file(frames), Format.JSON, **options)
        found: list[dict[str, Any]] = json.loads(self._output())
        return found

    def _file(self, frames: Sequence[bytes] | str) -> str:
        return frames if isinstance(frames, str) else self.file(frames)

    def _output(self) -> str:
        shown = self._capsys.readouterr()
        self.said = shown.err
        return shown.out
