"""The band that says when figures of this machine are worth nothing. Every stream of the page has what it shows."""

from __future__ import annotations

from testbed.api.console.view import View

VIEW = View(name="trust", title="Trust", order=90, scope="machine", style=True)
