"""Views beside map, table and charts, and actions: a module for each view and each group of actions."""

VIEWS: tuple[str, ...] = ("labs", "actions", "job", "pauses", "results", "capture", "trust", "shells", "logs")
ACTION_MODULES: tuple[str, ...] = ("link_actions", "node_actions", "pause_actions", "lab_actions")
