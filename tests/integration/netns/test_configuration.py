"""Daemons run the configuration that was written for them, every line of it.

No daemon stops at a line that it does not know or cannot carry out: it says so in its log, or on its standard
error while the log is not yet open, and goes on without. So logs are searched, and what runs is compared with
what was written.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.base.linux import vty
from testbed.base.units import Duration
from testbed.lab.core.deploy import routing
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.routing.frr import configuration_file
from testbed.lab.core.model import Bfd, Protocol, Routing
from testbed.lab.core.render import SwitchConfig, render_switch

pytestmark = [pytest.mark.netns, pytest.mark.frr]

REFUSALS = ("on config line", "No such command", "Unknown command", "failed to open", "ermission denied", "\n% ")
SAID_OTHERWISE = ("frr version", "frr defaults", "log file", "exit", "!")
"""Lines that belong to files, or that a daemon shows with other details."""
DEFAULTS = (
    *("no bgp suppress-fib-pending", "no bgp ebgp-requires-policy", "no ipv6 nd suppress-ra"),
    *("detect-multiplier 3", "receive-interval 300", "transmit-interval 300"),
)
"""Lines that a release may leave out of what it shows, because they are its defaults."""

SECOND = Bfd(interval=Duration.parse("1s"), multiplier=4)
KINDS: dict[str, dict[str, Any]] = {
    "ebgp-bfd": {"super_spines": 2, "pods": 2, "routing": Routing(bfd=SECOND, bfd_auto=False)},
    "ibgp": {"routing": Routing(protocol=Protocol.IBGP, bfd=SECOND, bfd_auto=False)},
    "aggregates": {"design": "multi-rail-switch", "gpus": 8},
}


def refusals(lab: RunningLab) -> list[str]:
    """What daemons said against their configurations, and the lines of these that they do not show."""
    found = []
    for node, daemons in lab.daemons.items():
        directory = lab.run_directory(node)
        for daemon in daemons:
            for name in (f"{daemon}.log", f"{daemon}.out"):
                lines = (directory / name).read_text(errors="replace").splitlines()
                found += [f"{node} {name}: {line}" for line in lines if any(sign in f"\n{line}" for sign in REFUSALS)]
            running = vty.ask(directory, daemon, "show running-config").splitlines()
            shown = {line.strip() for line in running} | set(DEFAULTS)
            written = configuration_file(directory, daemon).read_text().splitlines()
            found += [
                f"{node} {daemon} does not show: {line}"
                for line in map(str.strip, written)
                if line and line not in shown and not line.startswith(SAID_OTHERWISE)
            ]
    return found


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_daemon_runs_what_was_written(sandbox: Any, kind: str) -> None:
    lab = sandbox.deploy(sandbox.model(**KINDS[kind])).lab
    assert refusals(lab) == []


def test_a_refused_line_is_seen_in_every_daemon(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def render(*arguments: Any, **options: Any) -> SwitchConfig:
        config = render_switch(*arguments, **options)
        return replace(config, daemons={name: f"{text}no-such-thing\n" for name, text in config.daemons.items()})

    monkeypatch.setattr(routing, "render_switch", render)
    lab = sandbox.deploy(sandbox.model(segments=1, gpus=1, spines=1, routing=Routing(bfd=SECOND, bfd_auto=False))).lab
    found = refusals(lab)
    for node, daemons in lab.daemons.items():
        for daemon in daemons:
            assert f"{node} {daemon} does not show: no-such-thing" in found
            logs = [line for line in found if line.startswith((f"{node} {daemon}.log", f"{node} {daemon}.out"))]
            assert any("no-such-thing" in line for line in logs), (daemon, found)


def test_what_daemons_write_stays_in_the_directory_of_their_node(sandbox: Any) -> None:
    shared = (Path("/run/frr"), Path("/etc/frr"), Path("/var/lib/frr"))
    before = {path for directory in shared if directory.is_dir() for path in directory.rglob("*")}
    sandbox.deploy(sandbox.tiny())
    assert {path for directory in shared if directory.is_dir() for path in directory.rglob("*")} == before
