"""Compiling C that comes with the package, once for each version of its source, with clang: the eBPF programs here,
and whatever else names its sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from testbed.base import files
from testbed.base.errors import CapabilityError, DriverError

_HEADERS = ("layout.h", "rules.h", "maps.h", "flows.h", "packets.h", "accounts.h", "samples.h", "paths.h")
_MULTIARCH = Path("/usr/include/x86_64-linux-gnu")
_INCLUDE = ("-I", str(_MULTIARCH)) if _MULTIARCH.is_dir() else ()
BPF_FLAGS = ("-O2", "-g", "-Wall", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_x86", *_INCLUDE, "-c")


def source_texts(package: str, directory: str, names: Sequence[str] = ()) -> dict[str, bytes]:
    """Source files of a package by name: these, or all C there is in the directory, in order."""
    here = resources.files(package).joinpath(directory)
    names = names or sorted(item.name for item in here.iterdir() if item.name.endswith((".c", ".h")))
    return {name: here.joinpath(name).read_bytes() for name in names}


def program_object(cache: Path | None = None) -> Path:
    """The compiled eBPF programs, from the cache where this source was compiled before.

    Raises `CapabilityError` where clang or the headers are missing.
    """
    sources = source_texts("testbed.base.datapath", "programs", (*_HEADERS, "port.bpf.c"))
    return compiled("port", ".bpf.o", sources, BPF_FLAGS, cache)


def compiled(
    name: str,
    suffix: str,
    sources: Mapping[str, bytes],
    flags: Sequence[str],
    cache: Path | None = None,
    *,
    what: str = "the data path",
) -> Path:
    """Return what clang makes of the `.c` files among `sources`, from the cache where it was made before.

    `what` it is, in a message.

    Raises `CapabilityError` where clang or a header is missing, `DriverError` for other failures.
    """
    digest = hashlib.sha256(repr((tuple(flags), sorted(sources.items()))).encode()).hexdigest()[:16]
    file = f"{name}-{digest}{suffix}"
    if cache is None:
        cache = files.cache_directory()
        if not os.environ.get("TESTBED_CACHE_DIR") and (files.SYSTEM_CACHE / file).exists():  # root has compiled it
            return files.SYSTEM_CACHE / file
    target = cache / file
    if target.exists():
        return target
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as scratch:
        directory = Path(scratch)
        for source, text in sources.items():
            (directory / source).write_bytes(text)
        units = [directory / source for source in sorted(sources) if source.endswith(".c")]
        # Without the name of the directory in what is for a debugger, the same source gives the same file.
        compile_c(units, directory / "out", [*flags, f"-ffile-prefix-map={directory}={name}"], what=what)
        files.write_atomically(target, (directory / "out").read_bytes(), mode=0o777)
    return target


def load_library(path: Path, functions: Iterable[tuple[str, Any, Sequence[Any]]]) -> Any:
    """Return a compiled library whose functions, each a name, a result and arguments, have these types of ctypes."""
    import ctypes

    loaded = ctypes.CDLL(str(path))
    for name, result, arguments in functions:
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def compile_c(
    sources: Sequence[Path], target: Path, flags: Sequence[str] = BPF_FLAGS, *, what: str = "the data path"
) -> None:
    """Compile `sources` into one file; eBPF unless `flags` say something else."""
    clang = shutil.which("clang")
    if clang is None:
        raise CapabilityError(
            f"qos: needs clang to compile {what}",
            missing="clang",
            hint="apt-get install clang libbpf-dev libbpf1 (./lab does it)",
        )
    argv = [clang, *flags, *map(str, sources), "-o", str(target)]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if result.returncode:
        if "file not found" in result.stderr:
            raise CapabilityError(
                f"{what} does not compile: {_first_error(result.stderr)}",
                missing="libbpf-dev",
                hint="apt-get install libbpf-dev linux-libc-dev libc6-dev",
            )
        raise DriverError(f"{what} does not compile: {_first_error(result.stderr)}", operation="clang")


def _first_error(text: str) -> str:
    return next((line for line in text.splitlines() if "error:" in line), text.strip())
