"""Plans become configuration files, by templates and without I/O."""

from testbed.lab.core.render.frr import ANYBODY, MANAGED_SINCE, FrrVersion, SwitchConfig, daemons_of, render_switch
