"""Mininet is found as PyPI's or Debian's package, and missed with a clear error."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from testbed.base.errors import CapabilityError
from testbed.lab.core.drivers.probing.mininet import find_mininet, load_mininet


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment has no Mininet, and none was imported."""
    find_spec = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        return None if name == "mininet" else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    kept = forget()
    yield
    forget()
    sys.modules.update(kept)


def forget() -> dict[str, ModuleType]:
    """Take what was imported of Mininet out of `sys.modules`."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "mininet"}


def package(directory: Path, net: str) -> Path:
    """Something like Debian's package, with this `net.py`."""
    path = directory / "mininet"
    path.mkdir()
    (path / "__init__.py").write_text('"Mininet"\n')
    (path / "net.py").write_text(net)
    (directory / "neighbour.py").write_text("raise AssertionError('nothing beside it is imported')\n")
    return path


def test_without_mininet(hidden: None, tmp_path: Path) -> None:
    assert find_mininet(tmp_path) == "Mininet is not installed"
    with pytest.raises(CapabilityError, match="not installed") as caught:
        load_mininet(tmp_path)
    assert caught.value.missing == "mininet"
    assert "apt-get install mininet" in (caught.value.hint or "")


def test_debians_package_is_taken_alone(hidden: None, tmp_path: Path) -> None:
    path = package(tmp_path, 'VERSION = "2.3.0"\n')
    assert find_mininet(path) == ""
    assert load_mininet(path) == "2.3.0"
    assert importlib.util.find_spec("neighbour") is None
    assert str(tmp_path) not in sys.path


def test_a_mininet_that_does_not_load(hidden: None, tmp_path: Path) -> None:
    path = package(tmp_path, "import no_such_module_of_mininet\n")
    with pytest.raises(CapabilityError, match="Mininet does not load: No module named 'no_such_module_of_mininet'"):
        load_mininet(path)
