"""Building the package: beside what pyproject.toml says, the JSON Schemas of the files users write are made, and what
is in the way of a packet is compiled.

The schemas follow from the models of `testbed.lab.core.schema`, so they are not tracked; a checkout has `testbed
schema` instead. Without a C compiler, or with TESTBED_PURE=1, a wheel has no compiled modules and fits any machine.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = Path(__file__).parent
KINDS = ("topology", "scenario", "prices")
sys.path.insert(0, str(ROOT))


def compiles() -> bool:
    """Tell whether modules are compiled here."""
    from testbed.base.compiled.build import missing
    from testbed.base.compiled.finder import is_pure

    return not is_pure() and not missing()


class PackageDistribution(Distribution):
    """What it builds is for this kind of machine where it has compiled modules."""

    def has_ext_modules(self) -> bool:
        return compiles()


class BuildWithMadeFiles(build_py):
    """Copies the modules, writes the schemas beside those of `testbed.api`, and compiles."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        from testbed.api.json_schema import write_schemas

        package = Path(self.build_lib) / "testbed"
        write_schemas(package / "api")
        if compiles():
            from testbed.base.compiled.build import build

            made = build(print).directory
            shutil.copytree(made, package / "base" / "compiled" / "built" / made.name, dirs_exist_ok=True)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        package = Path(self.build_lib) / "testbed"
        made = [] if self.editable_mode else [str(package / "api" / f"{kind}.schema.json") for kind in KINDS]
        made += map(str, sorted((package / "base" / "compiled" / "built").glob("*/*.so")))
        return [*super().get_outputs(include_bytecode), *made]


setup(cmdclass={"build_py": BuildWithMadeFiles}, distclass=PackageDistribution)
