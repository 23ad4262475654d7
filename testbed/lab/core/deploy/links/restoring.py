"""Changes of links that are in force, made once more at the ports of a node that was made anew."""

from __future__ import annotations

from dataclasses import replace

from testbed.lab.core.deploy.links.changes import LinkControl, declared_values
from testbed.lab.core.deploy.links.recorded import WireChange, htb_class, lock_links, read_link_state


class LinkRestoration(LinkControl):
    """Makes recorded changes so again where a port has what the topology declares."""

    def restore(self, node: str) -> None:
        """Bring the ports of a node to what is recorded of them. Raises `DriverError`, `CapabilityError`.

        A port has the rates and the state of its own direction, and the delay of the other one.
        """
        directory = self._lab.state_directory
        with lock_links(directory):
            state = read_link_state(directory)
            for key, change in state.changes.items():
                port = self._ports.get(key)
                if port is None:
                    continue
                if port.node == node:
                    part = replace(change, delay_ns=None, jitter_ns=None)
                elif port.peer.partition(":")[0] == node:
                    part = WireChange(delay_ns=change.delay_ns, jitter_ns=change.jitter_ns)
                else:
                    continue
                declared = declared_values(port)
                originals = [htb_class(item) for item in state.classes.get(key, [])]
                self._apply(key, declared, declared.changed(part), originals, (WireChange(), part))
