"""Shells and logs in tabs at the lower edge of the page (`testbed.api.console.shells`, `logs`)."""

from __future__ import annotations

from testbed.api.console.view import View

VIEW = View(name="shells", title="Shells", order=95, scope="machine", style=True)
