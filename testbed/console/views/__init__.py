"""What pages show beside map, table and charts, and what they do: a module for each view and each group of actions."""

<<<<<<< HEAD
VIEWS: tuple[str, ...] = ("labs", "actions", "job", "pauses", "results", "capture", "trust", "shells", "logs")
ACTION_MODULES: tuple[str, ...] = ("link_actions", "node_actions", "pause_actions", "lab_actions")
=======
VIEWS = ("labs", "job", "pauses", "results", "capture", "logs")
"""The modules that have a `VIEW`."""
ACTION_MODULES = ("link_actions", "node_actions", "pause_actions", "lab_actions")
"""The modules that have `ACTIONS`, in the order of menus."""
>>>>>>> h-server
