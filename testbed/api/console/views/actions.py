"""The menu of actions, their dialogs, and what undoes them: the page has all of it, and here it is registered."""

from __future__ import annotations

from testbed.api.console.view import View

VIEW = View(name="actions", title="Actions", order=15, scope="machine", style=True)
