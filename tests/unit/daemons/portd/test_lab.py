"""An attached lab without a kernel: events from a ring in memory, and a namespace that is none."""

import json
import time
from pathlib import Path

import numpy as np
from attached_ports import attached_port
from memory_maps import maps_in_memory, ring_in_memory
from pfc_frames import MAX_QUANTA

from testbed.base.datapath.abi import CLASSES, EventKind
from testbed.base.datapath.maps import EVENT, PAUSE
from testbed.daemons.portd.attachment import AttachmentFiles, LabAttachment
from testbed.daemons.portd.lab import AttachedLab

SENDER, RECEIVER, PRIORITY = 1, 2, 5
"""Two ends of a link."""


def attachment(events_file: Path) -> LabAttachment:
    ports = tuple(attached_port(number, 3 - number, lossless=(PRIORITY,)) for number in (SENDER, RECEIVER))
    return LabAttachment(lab="lab", pin_directory=Path("/none"), events_file=events_file, ports=ports)


def event(kind: EventKind, port: int, priority: int, quanta: int = 0, ns: int = 1) -> bytes:
    record = np.zeros(1, EVENT)
    record["ns"], record["port"], record["kind"], record["priority"] = ns, port, kind, priority
    record["quanta"] = quanta
    return record.tobytes()


def test_what_happens_is_written_where_the_data_path_reads(tmp_path: Path) -> None:
    maps = maps_in_memory(4)
    maps.ingress[RECEIVER * CLASSES + PRIORITY]["xoff"] = 1
    records = [
        event(EventKind.PFC, SENDER, 1 << PRIORITY, MAX_QUANTA),  # whose time was over long ago
        event(EventKind.PFC, SENDER, 1 << PRIORITY, 0),
        event(EventKind.XOFF, RECEIVER, PRIORITY),
    ]
    lab = AttachedLab.over(attachment(tmp_path / "events"), maps, ring_in_memory(records))
    lab.core.storm(RECEIVER, PRIORITY, 1_000_000_000, 0)
    lab.work()
    expected = {(RECEIVER, "xoff_sent"): 1, (SENDER, "xoff_received"): 1, (SENDER, "xon_received"): 1}
    written = {
        (index // CLASSES, name): int(maps.pauses[index][name])
        for index in range(len(maps.pauses))
        for name in PAUSE.names or ()
        if maps.pauses[index][name] and not name.endswith("_since")
    }
    assert written == expected, "and nowhere else"
    assert maps.pauses[RECEIVER * CLASSES + PRIORITY]["asked_since"] > 0
    lab.close()


def test_same_failure_is_told_once_a_second(tmp_path: Path) -> None:
    records = [event(EventKind.XOFF, RECEIVER, PRIORITY)]
    maps = maps_in_memory(2)
    maps.ingress[RECEIVER * CLASSES + PRIORITY]["xoff"] = 1
    lab = AttachedLab.over(attachment(tmp_path / "events"), maps, ring_in_memory(records))
    lab.work()
    lab.close()
    assert lab.status()["failures"] == 2, "neither the pause nor the resume left"
    lines = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [(line["kind"], line["node"], line["subject"]) for line in lines] == [("pfc-failed", "n2", "eth0")]
    assert lines[0]["detail"] == "send a PFC frame: Invalid argument"


def test_a_lab_that_another_takes_over_keeps_its_gates_closed(tmp_path: Path) -> None:
    """Who opened them for a moment would let more in than a full queue has headroom for."""
    maps = maps_in_memory(4)
    maps.ingress[RECEIVER * CLASSES + PRIORITY]["xoff"] = 1
    gate = maps.pauses[SENDER * CLASSES + PRIORITY]
    pause = event(EventKind.PFC, SENDER, 1 << PRIORITY, MAX_QUANTA, ns=time.monotonic_ns())
    first = AttachedLab.over(attachment(tmp_path / "events"), maps, ring_in_memory([pause]))
    first.work()
    since = int(gate["paused_since"])
    assert gate["closed"] and since
    second = AttachedLab.over(attachment(tmp_path / "events"), maps, ring_in_memory([pause]))
    first.hand_over()
    assert gate["closed"] and gate["paused_since"] == since
    assert maps.pauses[RECEIVER * CLASSES + PRIORITY]["xon_sent"] == 0, "and nobody is told to go on"
    second.close()
    assert not gate["closed"]


def test_a_storm_goes_on_in_a_lab_that_takes_over(tmp_path: Path) -> None:
    """An exercise that any change of its lab ends would be called solved by it."""
    maps = maps_in_memory(4)
    storm, over = (maps.pauses[port * CLASSES + PRIORITY] for port in (RECEIVER, SENDER))
    first = AttachedLab.over(attachment(tmp_path / "events"), maps, ring_in_memory([]))
    first.storm(RECEIVER, PRIORITY, 60_000_000_000)
    first.storm(SENDER, PRIORITY, 1)
    second = AttachedLab.over(attachment(tmp_path / "events"), maps, ring_in_memory([]))
    assert not storm["storm"] and not over["storm"]
    second.go_on_with_storms(first)
    first.hand_over()
    assert storm["storm"] and storm["asked_since"]
    assert not over["storm"], "whose time was over"
    third = AttachedLab.over(attachment(tmp_path / "events"), maps, ring_in_memory([]))
    third.go_on_with_storms(second)
    assert storm["storm"], "and in the next one"
    third.close()
    assert not storm["storm"]


def test_with_an_attachment_goes_what_a_killed_command_has_left_of_it(tmp_path: Path) -> None:
    """Nothing else is to keep the directory."""
    files = AttachmentFiles(tmp_path)
    files.write(attachment(tmp_path / "events"))
    (tmp_path / ".lab.json.12345-1.new").write_text("{")
    (tmp_path / ".other.json.12345-1.new").write_text("{")
    files.remove("lab")
    assert [path.name for path in tmp_path.iterdir()] == [".other.json.12345-1.new"]
