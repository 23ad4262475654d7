"""Building the package: beside what pyproject.toml says, the JSON Schemas of the files users write are made, shipped
topologies and scenarios are put in, and what is in the way of a packet is compiled.

The schemas follow from the models of `testbed.lab.core.schema`, so they are not tracked; a checkout has `testbed
schema` instead. Without a C compiler, or with TESTBED_PURE=1, a wheel has no compiled modules and fits any machine.

Two builds of the same sources are equal to the byte: nothing of an earlier build stays, files have the same modes
whatever the umask was, and their times are SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch),
by default that of the version. Compiled modules are equal where compiler, Python and mypy are.
"""

import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.dist import Distribution

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))


def compiles() -> bool:
    """Tell whether modules are compiled here."""
    from testbed.base.compiled.build import missing
    from testbed.base.compiled.finder import is_pure

    return not is_pure() and not missing()


def bare_package(name: str) -> None:
    """Have modules of a package imported without what its `__init__` imports: that needs what testbed depends on, of
    which a build has the models' needs alone."""
    package = types.ModuleType(name)
    package.__path__ = [str(ROOT / name.replace(".", "/"))]
    sys.modules[name] = package


def released() -> str:
    """Return when the newest version that CHANGELOG.md has was released, in seconds since 1970, at midnight (UTC)."""
    dates = re.findall(r"^## \S+ - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    return str(int(datetime.datetime.fromisoformat(f"{dates[0]}T00:00:00+00:00").timestamp()))


def compile_into(target: Path) -> None:
    """Compile the modules anew, and put them into a directory of `target` that is named after the key of the build.

    mypyc writes its C in the order of sets, which follows from Python's hash seed: a process of its own has always the
    same.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONHASHSEED": "0", "XDG_CACHE_HOME": cache}
        subprocess.run([sys.executable, "-m", "testbed.base.compiled"], cwd=ROOT, env=environment, check=True)
        (made,) = (path for path in Path(cache, "testbed", "compiled").iterdir() if path.is_dir())
        shutil.copytree(made, target / made.name)


def set_modes(directory: Path) -> None:
    """Give all below a directory the modes of what everybody may read."""
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


class PackageDistribution(Distribution):
    """What it builds is for this kind of machine where it has compiled modules."""

    def has_ext_modules(self) -> bool:
        return compiles()


class BuildWithMadeFiles(build_py):
    """Copies the modules, writes the schemas and shipped files beside those of `testbed.api`, and compiles."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # modules that have been removed since
        super().run()
        if self.editable_mode:
            return
        bare_package("testbed.api")
        from testbed.api.json_schema import write_schemas
        from testbed.api.shipped_files import shipped_paths

        package = Path(self.build_lib) / "testbed"
        write_schemas(package / "api")
        for path in shipped_paths(ROOT):
            copy = package / "api" / "shipped" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        if compiles():
            compile_into(package / "base" / "compiled" / "built")
        for path in package.rglob("*"):
            path.chmod(0o755 if path.is_dir() or (os.access(path, os.X_OK) and path.suffix != ".so") else 0o644)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        package = Path(self.build_lib) / "testbed"
        made = [*map(str, sorted((package / "api").glob("*.schema.json")))]
        made += map(str, sorted(path for path in (package / "api" / "shipped").rglob("*") if path.is_file()))
        made += map(str, sorted((package / "base" / "compiled" / "built").glob("*/*.so")))
        return [*super().get_outputs(include_bytecode), *made]


class WheelOfAnyCheckout(bdist_wheel):
    """Has the licence with the same mode as all else, whatever that of the checkout's file is."""

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        super().egg2dist(egginfo_path, distinfo_path)
        set_modes(Path(distinfo_path))


class SourcesToBuildFrom(sdist):
    """Has what a wheel is made of beside the package."""

    def make_distribution(self) -> None:
        bare_package("testbed.api")
        from testbed.api.shipped_files import shipped_paths

        shipped = (str(path.relative_to(ROOT)) for path in shipped_paths(ROOT))
        self.filelist.extend(["CHANGELOG.md", *sorted(shipped)])
        super().make_distribution()


os.environ.setdefault("SOURCE_DATE_EPOCH", released())
os.umask(0o022)
setup(
    cmdclass={"bdist_wheel": WheelOfAnyCheckout, "build_py": BuildWithMadeFiles, "sdist": SourcesToBuildFrom},
    distclass=PackageDistribution,
)
