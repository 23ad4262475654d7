"""The band that says when figures of this machine are worth nothing. What it shows comes with every stream of the page."""

from __future__ import annotations

from testbed.console.view import View

VIEW = View(name="trust", title="Trust", order=90, scope="machine", style=True)
