"""Finding Mininet: the Python package of PyPI (2.3.0.dev6) or that of Debian (2.3.0), which are used alike.

Debian's lies outside of a virtual environment's path; it alone is taken from there. `mnexec` is not needed: nodes are
entered by this package's own means. Mininet is an optional dependency, imported by nothing but what is about it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path

from testbed.base.errors import CapabilityError

DEBIAN_PACKAGE = Path("/usr/lib/python3/dist-packages/mininet")
HINT = "apt-get install mininet, or pip install 'testbed[mininet]'"


def find_mininet(debian: Path = DEBIAN_PACKAGE) -> str:
    """ "" where Mininet is installed, else why not. Imports nothing."""
    if importlib.util.find_spec("mininet") is not None or (debian / "__init__.py").is_file():
        return ""
    return "Mininet is not installed"


def load_mininet(debian: Path = DEBIAN_PACKAGE) -> str:
    """Make `import mininet` work; returns its version. Raises `CapabilityError` where it is not, or does not load."""
    if "mininet" not in sys.modules and importlib.util.find_spec("mininet") is None:
        if not (debian / "__init__.py").is_file():
            raise CapabilityError("Mininet is not installed", missing="mininet", hint=HINT)
        _import_from(debian)
    if sys.version_info >= (3, 12):
        # Mininet imports distutils, which Python has no longer; setuptools brings it along.
        with contextlib.suppress(ImportError):
            importlib.import_module("setuptools")
    try:
        return str(importlib.import_module("mininet.net").VERSION)
    except ImportError as error:
        hint = "pip install setuptools" if error.name == "distutils" else HINT
        raise CapabilityError(f"Mininet does not load: {error}", missing="mininet", hint=hint) from error


def _import_from(package: Path) -> None:
    """Import the package `mininet` from its directory, and nothing that lies beside it."""
    spec = importlib.util.spec_from_file_location(
        "mininet", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise CapabilityError(f"{package} cannot be imported", missing="mininet", hint=HINT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = module
    spec.loader.exec_module(module)
