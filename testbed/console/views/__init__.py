"""What pages show beside map, table and charts, and what they do: a module for each view, and for a group of actions.
"""

VIEWS: tuple[str, ...] = ()
ACTION_MODULES: tuple[str, ...] = ()
