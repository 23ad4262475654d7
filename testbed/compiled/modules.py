"""What is compiled, and the key of a build: which sources, interpreter and way of building it is made for."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

PACKAGES = ("testbed/transport", "testbed/agent", "testbed/worker", "testbed/scenario/simulated")
"""Of these directories every module is compiled, but those in `INTERPRETED`."""
INTERPRETED = (
    "testbed/agent/completions.py",
    "testbed/agent/fabric.py",
    "testbed/agent/fabric_endpoint.py",
    "testbed/agent/perftest/",
    "testbed/agent/timer.py",
    "testbed/agent/message_layout.py",
    "testbed/agent/namespace.py",
    "testbed/agent/options.py",
    "testbed/agent/scale_up/",
    "testbed/transport/congestion/controller.py",
    "testbed/transport/congestion/registry.py",
    "testbed/transport/congestion/scaled_parameters.py",
    "testbed/transport/nvme/",
    "testbed/transport/roce/state_size.py",
    "testbed/transport/roce/config.py",
    "testbed/transport/roce/packets/opcodes.py",
    "testbed/transport/roce/packets/packet.py",
    "testbed/transport/roce/states.py",
    "testbed/transport/uet/atomics.py",
    "testbed/transport/uet/congestion/controller.py",
    "testbed/transport/uet/packets/codes.py",
    "testbed/scenario/simulated/approximations.py",
    "testbed/scenario/simulated/counters.py",
    "testbed/scenario/simulated/fabric.py",
    "testbed/scenario/simulated/lab.py",
    "testbed/scenario/simulated/point.py",
    "testbed/scenario/simulated/processes.py",
    "testbed/scenario/simulated/support.py",
    "testbed/scenario/simulated/transport_registry.py",
    "testbed/scenario/simulated/sweep.py",
    "testbed/scenario/simulated/execution.py",
    "testbed/scenario/simulated/sampling.py",
    "testbed/worker/buffers.py",
    "testbed/worker/copies.py",
    "testbed/worker/domain.py",
    "testbed/worker/errors.py",
    "testbed/worker/fio/",
    "testbed/worker/http/",
    "testbed/worker/inside_packets.py",
    "testbed/worker/json_values.py",
    "testbed/worker/nvme/",
    "testbed/worker/poll_loop.py",
    "testbed/worker/program.py",
    "testbed/worker/program_json.py",
    "testbed/worker/scale_up_json.py",
    "testbed/worker/streams/",
    "testbed/worker/transport_registry.py",
    "testbed/worker/transports/",
)
"""They are not in the way of a packet (coroutines, command lines, set-up), or gain nothing (tables, ctypes); atomics
are numbers of any type, where a compiled comparison rounds."""
WAY_OF_BUILDING = "2"
"""To be changed whenever the builder makes something else of the same sources."""
ROOT = Path(os.path.realpath(__file__)).parents[2]
"""The directory that `testbed` is in."""
PACKAGED = ROOT / "testbed/compiled/built"
"""Where a wheel has its build."""


def compiled_sources() -> list[str]:
    """The files that mypyc translates, relative to `ROOT`, in order."""
    found = _sources(".py")
    return [path for path in found if not path.startswith(INTERPRETED) and not Path(path).name.startswith("__")]


def native_sources() -> list[str]:
    """The modules in C, which are there in a build alone, relative to `ROOT`, in order."""
    return _sources(".c")


def _sources(ending: str) -> list[str]:
    found: list[str] = []
    for package in PACKAGES:
        for directory, _, files in os.walk(ROOT / package):
            inside = os.path.relpath(directory, ROOT)
            found += [f"{inside}/{name}" for name in files if name.endswith(ending)]
    return sorted(found)


def module_name(source: str) -> str:
    """The name of the module that a source file is: `testbed/agent/loop.py` is `testbed.agent.loop`."""
    return source.rpartition(".")[0].replace("/", ".")


def build_key() -> str:
    """The key of the build that fits the sources as they are, and this interpreter: 24 hexadecimal digits."""
    digest = hashlib.sha256(f"{WAY_OF_BUILDING} {sys.implementation.cache_tag} {sys.version}".encode())
    for source in (*compiled_sources(), *native_sources()):
        digest.update(source.encode() + b"\0" + (ROOT / source).read_bytes())
    return digest.hexdigest()[:24]


def builds_directory() -> Path:
    """Where builds are kept: a directory for each key, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "testbed" / "compiled"
