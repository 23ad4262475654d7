"""The GPUs of a host as a program in that host needs them to be one of them: a file that the lab writes.

A lab says where the file is in the environment variable `GPUS_VARIABLE` of the commands that it runs in a host.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.domain.endpoint import Gpu
from testbed.protocols.scale_up.domain.settings_json import decode_gpu, encode_gpu

GPUS_VARIABLE: Final = "TESTBED_GPUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGpus:
    """The GPUs of a host and the domain that they are in."""

    host: str
    """Its name in the lab."""
    domain: str
    library: Path
    """The compiled library of endpoints: a host need not have a compiler."""
    time_scale: float
    """k: rates in the lab are divided by it, and times multiplied."""
    rtt_ns: int
    """The round trip of a smallest transaction in the modelled system, without load."""
    rate_bps: int
    """The rate at which a GPU of the modelled system sends over all planes, and receives at the same time."""
    gpus: Sequence[Gpu]
    """In lab units. The first is the host's GPU 1."""

    @property
    def lab_rtt_ns(self) -> float:
        """The modelled round trip as it is in the lab."""
        return self.rtt_ns * self.time_scale

    def gpu(self, number: int) -> Gpu:
        """The GPU of a local number, from 1. Raises `UsageError`."""
        if not 1 <= number <= len(self.gpus):
            raise UsageError(f"there is no GPU {number} in this host: it has 1 to {len(self.gpus)}")
        return self.gpus[number - 1]

    def name(self, number: int) -> str:
        """Return the name in the lab of the GPU of a local number, such as p1-s1-h1.gpu2."""
        return f"{self.host}.gpu{number}"

    def to_json(self) -> str:
        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return json.dumps(fields | {"library": str(self.library), "gpus": [encode_gpu(gpu) for gpu in self.gpus]})

    @classmethod
    def from_json(cls, text: str) -> HostGpus:
        """Raises `UsageError` for what `to_json` has not written."""
        try:
            fields = json.loads(text)
            gpus = tuple(map(decode_gpu, fields.pop("gpus")))
            return cls(**fields | {"library": Path(fields["library"]), "gpus": gpus})
        except (AttributeError, KeyError, TypeError, ValueError, UsageError) as error:
            raise UsageError(f"this is no description of a host's GPUs, or one of another version: {error}") from None

    @classmethod
    def read(cls, path: Path | None = None) -> HostGpus:
        """The description in a file, by default the one that the environment names. Raises `UsageError`."""
        if path is None:
            if not (named := os.environ.get(GPUS_VARIABLE)):
                raise UsageError(
                    f"{GPUS_VARIABLE} is not set: this is no host of a lab whose fabric.scale_up has by: packets"
                )
            path = Path(named)
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
