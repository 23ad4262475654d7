"""Compiling the eBPF programs: once for each version of their source, with clang."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from testbed.errors import CapabilityError, DriverError

CACHE_DIRECTORY = Path(os.environ.get("TESTBED_CACHE_DIR", "/var/cache/testbed"))
_SOURCES = ("layout.h", "maps.h", "packets.h", "accounts.h", "port.bpf.c")
_MULTIARCH = Path("/usr/include/x86_64-linux-gnu")
_FLAGS = ("-O2", "-g", "-Wall", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_x86")


def program_object(cache: Path | None = None) -> Path:
    """The compiled programs, from the cache where this source was compiled before.

    Raises `CapabilityError` where clang or the headers are missing.
    """
    cache = CACHE_DIRECTORY if cache is None else cache
    sources = {name: resources.files("testbed.datapath").joinpath("programs", name).read_bytes() for name in _SOURCES}
    digest = hashlib.sha256(repr((_FLAGS, sorted(sources.items()))).encode()).hexdigest()[:16]
    target = cache / f"port-{digest}.bpf.o"
    if target.exists():
        return target
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as scratch:
        directory = Path(scratch)
        for name, text in sources.items():
            (directory / name).write_bytes(text)
        compile_c(directory / "port.bpf.c", directory / "out.o")
        (directory / "out.o").replace(target)
    return target


def compile_c(source: Path, target: Path) -> None:
    """Compile one eBPF program."""
    clang = shutil.which("clang")
    if clang is None:
        raise CapabilityError(
            "qos: needs clang to compile the data path",
            missing="clang",
            hint="apt-get install clang libbpf-dev libbpf1 (./lab does it)",
        )
    include = ("-I", str(_MULTIARCH)) if _MULTIARCH.is_dir() else ()
    argv = [clang, *_FLAGS, *include, "-c", str(source), "-o", str(target)]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if result.returncode:
        if "file not found" in result.stderr:
            raise CapabilityError(
                f"the data path does not compile: {_first_error(result.stderr)}",
                missing="libbpf-dev",
                hint="apt-get install libbpf-dev linux-libc-dev",
            )
        raise DriverError(f"the data path does not compile: {_first_error(result.stderr)}", operation="clang")


def _first_error(text: str) -> str:
    return next((line for line in text.splitlines() if "error:" in line), text.strip())
