"""Processes of ours that have work of their own: started with their log, and said why where they are not."""

from pathlib import Path

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux.processes import last_line, launch, launch_servers


@pytest.mark.process
def test_what_a_process_prints_is_added_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    assert launch("this", [], log).wait(30) == 0
    assert log.read_text().startswith("before\nThe Zen of Python")
    assert last_line(log).startswith("Namespaces are one honking great idea")


@pytest.mark.process
def test_why_servers_do_not_start_is_the_last_line_of_their_log(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=r"the servers do not start: .*No module named testbed\.nothing"):
        launch_servers("testbed.nothing", [], tmp_path / "log", what="the servers do", timeout_s=30.0)
    with pytest.raises(DriverError, match="the servers do not start"):
        launch_servers("this", [], tmp_path / "missing" / "log", what="the servers do", timeout_s=30.0)
    assert last_line(tmp_path / "missing" / "log") == ""
