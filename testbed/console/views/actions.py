"""The menu of actions, their dialogs and what undoes them: all of it is the page's, and the server registers that it is."""

from __future__ import annotations

from testbed.console.view import View

VIEW = View(name="actions", title="Actions", order=15, scope="machine", style=True)
