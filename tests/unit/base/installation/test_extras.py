"""Packages that a bare wheel lacks: what needs one says which, and how to get it."""

import importlib
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.base.errors import CapabilityError
from testbed.base.installation.extras import extra_missing
from testbed.lab.features.containers.engine import ContainerEngine
from testbed.record.report.chart.sheet import write_picture

PROJECT = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]


def _connect(directory: Path) -> None:
    ContainerEngine.connect(f"unix://{directory}/docker.sock")


def _draw(directory: Path) -> None:
    write_picture("<svg/>", directory / "x.png")


def _log_in(directory: Path) -> None:
    importlib.import_module("testbed.vm.remote.ssh")


@pytest.mark.parametrize(
    ("extra", "package", "use"),
    [("docker", "docker", _connect), ("figures", "cairosvg", _draw), ("remote", "paramiko", _log_in)],
)
def test_what_needs_an_extra_names_it(
    extra: str, package: str, use: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "testbed.vm.remote.ssh", raising=False)
    with pytest.raises(CapabilityError, match=f"needs the Python package {package}") as told:
        use(tmp_path)
    assert (told.value.missing, told.value.hint) == (package, f"pip install 'testbed[{extra}]'")
    extras = PROJECT["optional-dependencies"]
    assert [line for line in extras[extra] if line.lower().startswith(package)]
    assert extra in extras["all"][0]
    assert not [line for line in PROJECT["dependencies"] if line.lower().startswith(package)]


def test_a_part_of_testbed_that_is_missing_is_no_extra() -> None:
    error = ModuleNotFoundError("No module named 'testbed.base.gone'", name="testbed.base.gone")
    with pytest.raises(ModuleNotFoundError, match="gone"):
        extra_missing("docker", "a container", error)
