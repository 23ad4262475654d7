"""Shells and logs in tabs at the lower edge of the page (`testbed.console.shells`, `logs`)."""

from __future__ import annotations

from testbed.console.view import View

VIEW = View(name="shells", title="Shells", order=95, scope="machine", style=True)
