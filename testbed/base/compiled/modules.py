"""The modules that are compiled, and the key of a build: its sources, interpreter and way of building."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from testbed.base.files import CHECKOUT

PACKAGES = ("testbed/protocols", "testbed/endpoints", "testbed/run/simulated", "testbed/run/flows/native")
"""Every module in these directories is compiled, but those in `INTERPRETED`."""
INTERPRETED = (
    "testbed/endpoints/fabric.py",
    "testbed/endpoints/fabric_endpoint.py",
    "testbed/endpoints/perftest/",
    "testbed/endpoints/timer.py",
    "testbed/endpoints/namespace.py",
    "testbed/endpoints/gpus/",
    "testbed/endpoints/infiniband/",
    "testbed/endpoints/libfabric/atomic_codes.py",
    "testbed/endpoints/libfabric/fabric_errors.py",
    "testbed/endpoints/libfabric/library.py",
    "testbed/endpoints/libfabric/program_memory.py",
    "testbed/endpoints/libfabric/settings.py",
    "testbed/endpoints/libfabric/wire.py",
    "testbed/endpoints/storage/",
    "testbed/protocols/captured/",
    "testbed/protocols/congestion/controller.py",
    "testbed/protocols/congestion/registry.py",
    "testbed/protocols/congestion/scaled_parameters.py",
    "testbed/protocols/infiniband/",
    "testbed/protocols/lacp/",
    "testbed/protocols/open_classes.py",
    "testbed/protocols/nvme/",
    "testbed/protocols/scale_up/",
    "testbed/protocols/roce/captured.py",
    "testbed/protocols/roce/captured_v1.py",
    "testbed/protocols/roce/state_size.py",
    "testbed/protocols/roce/config.py",
    "testbed/protocols/roce/packets/opcodes.py",
    "testbed/protocols/roce/packets/packet.py",
    "testbed/protocols/roce/states.py",
    "testbed/protocols/uet/atomics.py",
    "testbed/protocols/uet/captured.py",
    "testbed/protocols/uet/congestion/controller.py",
    "testbed/protocols/uet/congestion/registry.py",
    "testbed/protocols/uet/packets/codes.py",
    "testbed/run/simulated/beside.py",
    "testbed/run/simulated/convergence.py",
    "testbed/run/simulated/counters.py",
    "testbed/run/simulated/fabric.py",
    "testbed/run/simulated/faults.py",
    "testbed/run/simulated/faulty_links.py",
    "testbed/run/simulated/infiniband/execution.py",
    "testbed/run/simulated/infiniband/carrier.py",
    "testbed/run/simulated/infiniband/faults.py",
    "testbed/run/simulated/infiniband/subnets.py",
    "testbed/run/simulated/outlook.py",
    "testbed/run/simulated/point.py",
    "testbed/run/simulated/probes.py",
    "testbed/run/simulated/processes.py",
    "testbed/run/simulated/support.py",
    "testbed/run/simulated/transport_registry.py",
    "testbed/run/simulated/sweep.py",
    "testbed/run/simulated/execution.py",
    "testbed/run/simulated/time_scale.py",
    "testbed/run/simulated/timed.py",
    "testbed/endpoints/worker/buffers.py",
    "testbed/endpoints/worker/copies.py",
    "testbed/endpoints/worker/domain.py",
    "testbed/endpoints/worker/fio/",
    "testbed/endpoints/worker/http/",
    "testbed/endpoints/worker/inside_packets.py",
    "testbed/endpoints/worker/inside_pool.py",
    "testbed/endpoints/worker/nvme/",
    "testbed/endpoints/worker/poll_loop.py",
    "testbed/endpoints/worker/program.py",
    "testbed/endpoints/worker/program_json.py",
    "testbed/endpoints/worker/streams/",
    "testbed/endpoints/worker/transport_registry.py",
    "testbed/endpoints/worker/transports/",
)
"""They are not in the way of a packet (coroutines, command lines, set-up), or gain nothing (tables, ctypes); atomics
are numbers of any type, where a compiled comparison rounds. Registries of controllers are interpreted so that a
controller under work can be: nothing that is compiled calls it but by its base class."""
NATIVE_HEADERS = (
    "testbed/protocols/crc32.h",
    "testbed/run/flows/native/filling.h",
    "testbed/run/flows/native/shares.h",
)
"""Headers that modules in C include."""
WAY_OF_BUILDING = "3"
"""To be changed whenever the builder makes something else of the same sources."""
PACKAGED = CHECKOUT / "testbed/base/compiled/built"
"""The directory in which a wheel has its build."""


def compiled_sources() -> list[str]:
    """The files that mypyc translates, relative to `CHECKOUT`, in order."""
    found = _sources(".py")
    return [path for path in found if not path.startswith(INTERPRETED) and not Path(path).name.startswith("__")]


def native_sources() -> list[str]:
    """The modules in C, which are there in a build alone, relative to `CHECKOUT`, in order."""
    return [path for path in _sources(".c") if not path.startswith(INTERPRETED)]


def native_headers() -> list[str]:
    """The headers of `NATIVE_HEADERS` that are there, relative to `CHECKOUT`: an image of hosts has a part of it."""
    return [path for path in NATIVE_HEADERS if (CHECKOUT / path).is_file()]


def _sources(ending: str) -> list[str]:
    found: list[str] = []
    for package in PACKAGES:
        for directory, _, files in os.walk(CHECKOUT / package):
            inside = os.path.relpath(directory, CHECKOUT)
            found += [f"{inside}/{name}" for name in files if name.endswith(ending)]
    return sorted(found)


def is_interpreted(module: str) -> bool:
    """Tell whether a module below `PACKAGES` is none that is compiled: a package, or one of `INTERPRETED`."""
    path = module.replace(".", "/")
    return f"{path}.py".startswith(INTERPRETED) or (CHECKOUT / path).is_dir()


def module_name(source: str) -> str:
    """The name of the module that a source file is: `testbed/endpoints/loop.py` is `testbed.endpoints.loop`."""
    return source.rpartition(".")[0].replace("/", ".")


def build_key() -> str:
    """The key of the build that fits the sources as they are, and this interpreter: 24 hexadecimal digits."""
    digest = hashlib.sha256(maker().encode())
    for source in (*compiled_sources(), *native_sources(), *native_headers()):
        digest.update(source.encode() + b"\0" + (CHECKOUT / source).read_bytes())
    return digest.hexdigest()[:24]


def maker() -> str:
    """The interpreter and the way of building: a build of another maker cannot be loaded here."""
    return f"{WAY_OF_BUILDING} {sys.implementation.cache_tag} {sys.version}"


def source_digests() -> dict[str, str]:
    """By module name, the digest of each source that goes into a build; a module in C has those of its headers in it.

    They are 24 hexadecimal digits.
    """
    headers = [(CHECKOUT / header).read_bytes() for header in native_headers()]
    contents = {source: [(CHECKOUT / source).read_bytes()] for source in compiled_sources()}
    contents |= {source: [(CHECKOUT / source).read_bytes(), *headers] for source in native_sources()}
    return {
        module_name(source): hashlib.sha256(b"\0".join(parts)).hexdigest()[:24] for source, parts in contents.items()
    }


def file_digests(paths: Iterable[str]) -> dict[str, str]:
    """The digests of files relative to `CHECKOUT`, by their paths; of one that is not there it is ""."""
    found = {}
    for path in paths:
        try:
            found[path] = hashlib.sha256((CHECKOUT / path).read_bytes()).hexdigest()[:24]
        except OSError:
            found[path] = ""
    return found


def builds_directory() -> Path:
    """Return where builds are kept: a directory for each key, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "testbed" / "compiled"
