"""Building the package: beside what pyproject.toml says, the JSON Schemas of the files users write are made.

They follow from the models of `testbed.spec`, so they are not tracked; a checkout has `testbed schema` instead.
"""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
KINDS = ("topology", "scenario")


class BuildWithSchemas(build_py):
    """Copies the modules and writes the schemas beside those of `testbed.spec`."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        sys.path.insert(0, str(ROOT))
        from testbed.spec.schema import write_schemas

        write_schemas(Path(self.build_lib) / "testbed" / "spec")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        directory = Path(self.build_lib) / "testbed" / "spec"
        written = [] if self.editable_mode else [str(directory / f"{kind}.schema.json") for kind in KINDS]
        return [*super().get_outputs(include_bytecode), *written]


setup(cmdclass={"build_py": BuildWithSchemas})
