"""The refusal of a change."""

from __future__ import annotations

from testbed.base.errors import TestbedError


class ChangeRefused(TestbedError):
    """A change that a lab that is up cannot take."""
