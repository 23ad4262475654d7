"""A daemon that takes its configuration anew: what is served for a switch goes on where its words are the same."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.base.errors import TestbedError
from testbed.daemons.kit import configuration
from testbed.daemons.kit.reloading import reload_switches


@dataclass(frozen=True, kw_only=True)
class Switch:
    name: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Configuration:
    rate: int
    switches: tuple[Switch, ...]


OLD = Configuration(rate=1, switches=(Switch(name="s1", port=1), Switch(name="s2", port=2), Switch(name="s3", port=3)))


class Daemon:
    def __init__(self, source: Path | None) -> None:
        self.source = source
        self.stopped: list[str] = []
        self.served: Configuration | None = None

    def reload(self) -> Configuration:
        return reload_switches(
            self.source, OLD, stop=self.stopped.extend, serve=self.serve, alike=lambda new: new.rate == OLD.rate
        )

    def serve(self, new: Configuration) -> None:
        if any(switch.port == 0 for switch in new.switches):
            raise RuntimeError("port 0 is taken")
        self.served = new


def told(tmp_path: Path, new: Configuration) -> Daemon:
    path = tmp_path / "configuration.json"
    configuration.write(path, new)
    return Daemon(path)


def test_a_switch_of_which_the_same_is_said_goes_on(tmp_path: Path) -> None:
    new = Configuration(rate=1, switches=(Switch(name="s1", port=1), Switch(name="s2", port=7)))
    daemon = told(tmp_path, new)
    assert daemon.reload() == new == daemon.served
    assert daemon.stopped == ["s2", "s3"]


def test_all_begin_again_where_what_is_the_same_for_all_differs(tmp_path: Path) -> None:
    daemon = told(tmp_path, Configuration(rate=2, switches=OLD.switches))
    daemon.reload()
    assert daemon.stopped == ["s1", "s2", "s3"]


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="cannot serve the new configuration: port 0 is taken"):
        told(tmp_path, Configuration(rate=1, switches=(Switch(name="s1", port=0),))).reload()
    with pytest.raises(TestbedError, match=r"cannot serve the new configuration: .*No such file"):
        Daemon(tmp_path / "none.json").reload()
    with pytest.raises(TestbedError, match="in no file"):
        Daemon(None).reload()
