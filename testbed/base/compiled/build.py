"""Compiles the modules by mypyc and a C compiler, on all CPUs, into a directory of the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import io
import os
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.compiled.finder import GROUP, left_out_of
from testbed.base.compiled.imports import Imports
from testbed.base.compiled.manifest import BuiltModule, Manifest, native_needs, read_manifest
from testbed.base.compiled.modules import (
    build_key,
    builds_directory,
    compiled_sources,
    file_digests,
    maker,
    module_name,
    native_sources,
    source_digests,
)
from testbed.base.compiled.partial import find_partial, is_partial, take_over
from testbed.base.files import CHECKOUT

KEPT_BUILDS = 4
"""The number of builds that stay in the cache, and of partial ones; the least recently used go first."""
TAKEN_OVER_WITHIN_S = 600.0
"""The age, in seconds, at which a take-over is one that was killed: it only links some hundred files."""
MYPY_OPTIONS = ("--config-file=", "--follow-imports=silent")
"""Imports of other modules are followed for their types alone: of a package without them, such as PyYAML where its
stubs are not installed, nothing is asked."""
_COMPILERS = ("gcc", "clang", "cc")
_FLAGS = ("-g1", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-fno-semantic-interposition", "-w")
_TRANSLATED = "-O1"
"""The optimisation of the C that mypyc writes: more takes a third longer to compile, and sends no faster."""
_NATIVE = "-O3"
"""The optimisation of C written by hand: its loops over vectors keep those in registers only from -O2 on, and leave no
upper halves behind, which make the code after them slow (`vzeroupper`)."""


class BuildError(Exception):
    """The modules cannot be compiled here. `hint` says what would help."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build that fits the sources. `seconds` is None where it was there already."""

    directory: Path
    modules: int
    seconds: float | None
    left_out: tuple[str, ...] = ()
    """The modules that are interpreted, because they have changed since the build that the others are taken from."""


def build(say: Callable[[str], None] = lambda text: None, *, whole: bool = True) -> Build:
    """Return the build that fits the sources; it is made where there is none.

    Where it need not be `whole`, and few modules have changed since a build that is there, that one is taken and these
    modules are left out of it, without waiting for anybody who compiles. Raises `BuildError` where a compiler, Python's
    headers or mypyc are missing, or one of them fails.
    """
    builds = builds_directory()
    builds.mkdir(parents=True, exist_ok=True)
    directory = builds / build_key()
    sources = compiled_sources()
    if not whole and not directory.is_dir():
        _take_over_what_fits(builds, directory)
    if (found := _found(directory, sources, whole=whole)) is not None:
        return found
    with _alone(builds, say):
        if (found := _found(directory, sources, whole=whole)) is not None:  # whoever we waited for has made it
            return found
        began = time.monotonic()
        _remove_remains(builds)
        scratch = Path(tempfile.mkdtemp(prefix="making-", dir=builds))
        try:
            _compile(sources, scratch, say)
            if build_key() != directory.name:
                raise BuildError("a source was changed while it was compiled", "compile again; now it runs interpreted")
            _remove(directory)  # one that is partial, or stale
            (scratch / "made").rename(directory)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _forget_oldest(builds, directory)
    return Build(directory=directory, modules=len(sources), seconds=time.monotonic() - began)


def _found(directory: Path, sources: Sequence[str], *, whole: bool) -> Build | None:
    """Return the build that is in a directory; None where there is none that does."""
    if not directory.is_dir() or (whole and is_partial(directory)) or _is_stale(directory):
        return None
    try:
        os.utime(directory)
    except FileNotFoundError:  # somebody else has just removed it
        return None
    left_out = left_out_of(str(directory))
    count = sum(module_name(source) not in left_out for source in sources)
    return Build(directory=directory, modules=count, seconds=None, left_out=left_out)


def _is_stale(directory: Path) -> bool:
    """Tell whether constants of modules that are not compiled, which a build has in its code, have changed since."""
    manifest = read_manifest(directory)
    if manifest is None or file_digests(manifest.beside) == manifest.beside:
        return False
    return Imports(CHECKOUT, source_digests()).surroundings() != manifest.surroundings


def _take_over_what_fits(builds: Path, directory: Path) -> None:
    """Make a partial build of one that is there, if there is one that only few modules have to be left out of."""
    partial = find_partial(_finished(builds), maker(), source_digests(), CHECKOUT)
    if partial is None:
        return
    with contextlib.suppress(FileNotFoundError):  # somebody else has just removed it
        os.utime(partial.directory)
        take_over(partial, builds, directory)
    _forget_oldest(builds, directory)


def missing() -> str:
    """Name the tools that compiling needs and this machine lacks, in words; "" where it has all."""
    if _compiler() is None:
        return "a C compiler (gcc or clang)"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "Python's headers (Debian: python3-dev)"
    if importlib.util.find_spec("mypyc") is None:
        return "mypyc (pip install mypy)"
    if not any(map(importlib.util.find_spec, ("distutils", "setuptools"))):  # mypyc imports either
        return "distutils, which Python has no longer (pip install setuptools)"
    return ""


def _compiler() -> str | None:
    return next((found for name in _COMPILERS if (found := shutil.which(name))), None)


@contextlib.contextmanager
def _alone(builds: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Only one process builds; another says that it waits, and finds the build."""
    with (builds / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another testbed of this user that compiles (TESTBED_PURE=1 runs interpreted at once)")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _finished(builds: Path) -> list[Path]:
    """Return the builds that are whole or partial; what is being made has a dash in its name."""
    return [item for item in builds.iterdir() if item.is_dir() and "-" not in item.name]


def _remove_remains(builds: Path) -> None:
    """Remove what builds that were killed have left: nobody else makes one, since we hold the lock, and what takes one
    over is done in a moment."""
    for item in (*builds.glob("making-*"), *builds.glob("taking-*")):
        with contextlib.suppress(FileNotFoundError):  # a take-over has just ended
            if item.name.startswith("making-") or item.stat().st_mtime < time.time() - TAKEN_OVER_WITHIN_S:
                shutil.rmtree(item, ignore_errors=True)


def _forget_oldest(builds: Path, newest: Path) -> None:
    """Keep the latest builds, and as many partial ones: those are many where somebody tries things."""
    for partial in (False, True):
        found = [item for item in _finished(builds) if is_partial(item) is partial and item != newest]
        found.sort(key=_last_used_at, reverse=True)
        for item in found[KEPT_BUILDS - 1 :]:
            _remove(item)


def _last_used_at(directory: Path) -> float:
    """Return when a build was taken last, in seconds of the epoch; 0 for one that somebody else has just removed."""
    try:
        return directory.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(directory: Path) -> None:
    """Remove a build, if there is one. Others who look for builds meanwhile find all of it, or nothing."""
    scratch = Path(tempfile.mkdtemp(prefix="making-", dir=directory.parent))
    with contextlib.suppress(FileNotFoundError):
        directory.rename(scratch / directory.name)
    shutil.rmtree(scratch, ignore_errors=True)


def _compile(sources: Sequence[str], scratch: Path, say: Callable[[str], None]) -> None:
    lacks = missing()
    if lacks:
        raise BuildError(f"the transports cannot be compiled for lack of {lacks}", "they run interpreted, more slowly")
    say(f"translating {len(sources)} modules to C")
    extensions = _translate(sources, scratch)
    made = scratch / "made"
    made.mkdir()
    libraries = {
        extension.name: [
            (source, f"{scratch}/{extension.name}-{index}.o") for index, source in enumerate(extension.sources)
        ]
        for extension in extensions
    }
    for source in native_sources():
        name = module_name(source)
        libraries[name] = [(str(CHECKOUT / source), f"{scratch}/{name}.o")]
    units = [unit for library in libraries.values() for unit in library]
    # Where it was made is nowhere in what is made: two builds of the same sources are equal.
    headers = extensions[0].include_dirs  # of mypyc, which pip installs at a place of its own for each wheel
    places = {str(scratch): "build", str(CHECKOUT): "."} | dict.fromkeys(headers, "mypyc")
    placeless = [f"-ffile-prefix-map={place}={name}" for place, name in places.items()]
    include = [f"-I{item}" for item in (*headers, sysconfig.get_paths()["include"])]
    compiler = _compiler()
    assert compiler is not None
    say(f"compiling {len(units)} files with {Path(compiler).name}")
    # The longest first: the end is not to wait for one of them.
    units.sort(key=lambda unit: Path(unit[0]).stat().st_size, reverse=True)

    native = {str(CHECKOUT / source) for source in native_sources()}

    def compile_one(unit: tuple[str, str]) -> None:
        level = _NATIVE if unit[0] in native else _TRANSLATED
        _run([compiler, level, *_FLAGS, *placeless, *include, "-c", unit[0], "-o", unit[1]])

    def link_one(name: str) -> None:
        _run([compiler, "-shared", *(unit[1] for unit in libraries[name]), "-o", str(made / f"{name}.so")])

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compile_one, units))
        list(pool.map(link_one, libraries))
    manifest = _manifest(sources, [Path(source) for extension in extensions for source in extension.sources])
    if manifest is not None:
        manifest.write(made)


def _manifest(sources: Sequence[str], written: Iterable[Path]) -> Manifest | None:
    """Say who needs whom in a build, of which `written` is the C; None where that is not known."""
    from mypyc.namegen import NameGenerator, exported_name

    names = [module_name(source) for source in sources]
    generator = NameGenerator([names])
    prefixes = {name: generator.private_name(name, "") for name in names}
    files = {path.name: path for path in written}
    try:
        texts = {name: files[f"__native_{exported_name(name)}.c"].read_text() for name in names}
        native = native_needs(texts, prefixes)
    except (LookupError, ValueError):  # another mypyc, which calls things otherwise
        return None
    imports = Imports(CHECKOUT, names)
    needs = {name: frozenset(native[name] | imports.needs(name)) for name in names}
    modules = {
        name: BuiltModule(source=digest, needs=needs.get(name, frozenset()), layout=imports.layout(name))
        for name, digest in source_digests().items()
    }
    beside = file_digests(imports.surrounding_files())
    return Manifest(maker=maker(), modules=modules, surroundings=imports.surroundings(), beside=beside)


def _translate(sources: Sequence[str], scratch: Path) -> list[Any]:
    """Translate the sources to C. mypyc writes to standard output and ends the process where it fails."""
    from mypyc.build import mypycify

    before = Path.cwd()
    words = io.StringIO()
    os.chdir(CHECKOUT)
    try:
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            return list(
                mypycify(
                    [*MYPY_OPTIONS, f"--cache-dir={scratch}/mypy", *sources],
                    opt_level="1",
                    multi_file=True,
                    target_dir=str(scratch / "c"),
                    group_name=GROUP.removesuffix("__mypyc"),
                )
            )
    except SystemExit:
        raise BuildError(
            f"mypyc cannot translate the modules: {words.getvalue().strip()[-2000:]}", "see above"
        ) from None
    finally:
        os.chdir(before)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        raise BuildError(f"{command[0]} failed: {words[-2000:]}", "they run interpreted, more slowly")
