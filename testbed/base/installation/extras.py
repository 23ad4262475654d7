"""Packages of Python that a bare installation lacks: a wheel has them as extras, since not every user needs them.

`./lab` installs all of them, so that only who has installed a wheel meets this error.
"""

from __future__ import annotations

from testbed.base.errors import CapabilityError


def extra_missing(extra: str, needed_for: str, error: ModuleNotFoundError) -> CapabilityError:
    """Return the error for a package of an extra of `pyproject.toml` that could not be imported.

    Raises `error` again where a part of testbed itself is missing.
    """
    package = error.name or extra
    if package.startswith("testbed"):
        raise error
    return CapabilityError(
        f"{needed_for} needs the Python package {package}, which is not installed",
        missing=package,
        hint=f"pip install 'testbed[{extra}]'",
    )
