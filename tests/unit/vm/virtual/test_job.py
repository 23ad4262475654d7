"""The job's disk of a lab VM in virtual time: what goes in, what comes out, and what is no outcome."""

import json
import tarfile
from pathlib import Path

import pytest

from testbed.cli.machine.elsewhere import results_aside
from testbed.vm.errors import MachineError
from testbed.vm.image.build import VmImage
from testbed.vm.image.checkout import add
from testbed.vm.remote import workplace
from testbed.vm.remote.target import Renamed
from testbed.vm.virtual import machine as virtual
from testbed.vm.virtual.job import BASE, FILES, JOB, OUTCOME


def job_of(tmp_path: Path, *arguments: str, **variables: str) -> virtual.VirtualJob:
    return virtual.VirtualJob(arguments=arguments, directory=tmp_path, results=tmp_path / "out", variables=variables)


def written(tmp_path: Path, *arguments: str) -> tuple[dict[str, object], list[str]]:
    disk = tmp_path / "job.tar"
    virtual._write_job(disk, job_of(tmp_path, *arguments, TESTBED_RUN_REPEAT="2"))
    with tarfile.open(disk) as tar:
        content = tar.extractfile(JOB)
        return json.loads(content.read()), tar.getnames()


def test_a_job_has_its_words_its_files_and_our_code(tmp_path: Path) -> None:
    (tmp_path / "small.yml").write_text("name: small\n")
    job, names = written(tmp_path, "run", "small.yml", "--results", str(tmp_path / "out"))
    assert job == {
        "arguments": ["run", "small.yml", "--results", f"{BASE}{tmp_path}/out"],
        "directory": f"{BASE}{tmp_path}",
        "environment": {"TESTBED_RUN_REPEAT": "2"},
    }
    assert f"{FILES}{str(tmp_path / 'small.yml').lstrip('/')}" in names
    assert "checkout/testbed/vm/virtual/job.py" in names
    assert "checkout/testbed/record/record.py" in names


def test_the_same_job_is_the_same_disk(tmp_path: Path) -> None:
    (tmp_path / "small.yml").write_text("name: small\n")
    disks = []
    for name in ("first", "second"):
        virtual._write_job(tmp_path / name, job_of(tmp_path, "run", "small.yml"))
        disks.append((tmp_path / name).read_bytes()[: 64 << 20])
    assert disks[0] == disks[1]


def test_a_job_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "JOB_DISK_BYTES", 1 << 20)
    with pytest.raises(MachineError, match="larger than its disk"):
        virtual._write_job(tmp_path / "job.tar", job_of(tmp_path, "run"))


def test_an_outcome_is_read_from_over_the_job(tmp_path: Path) -> None:
    disk = tmp_path / "job.tar"
    virtual._write_job(disk, job_of(tmp_path, "run"))
    assert virtual._read_outcome(disk) == (None, b"")
    with disk.open("r+b") as device, tarfile.open(fileobj=device, mode="w|") as tar:
        add(tar, OUTCOME, json.dumps({"status": 1, "guest_s": 20.5, "verb_s": 9.0}).encode())
        add(tar, f"{FILES}results/record.json", b"{}")
    outcome, archive = virtual._read_outcome(disk)
    assert outcome == {"status": 1, "guest_s": 20.5, "verb_s": 9.0}
    assert workplace.unpack(archive, tmp_path / "back", prefix=FILES) == [tmp_path / "back/results/record.json"]


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000, bytes(10_000)])
def test_what_is_no_outcome(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "disk").write_bytes(content)
    assert virtual._read_outcome(tmp_path / "disk") == (None, b"")


def test_nothing_can_reach_the_guest(tmp_path: Path) -> None:
    """No network, no disk that interrupts, one core, a fixed seed and date."""
    for name in ("disk.raw", "vmlinuz", "initramfs.cpio"):
        (tmp_path / name).touch()
    image = VmImage(directory=tmp_path, kernel_version="7.3")
    options = virtual.machine_options(image, tmp_path / "job", [tmp_path / "console"])
    line = " ".join(options)
    for words in ("-nic none", "-smp 1", "-icount shift=0,sleep=off,align=off", "-seed 1", "clock=vm", "nokaslr"):
        assert words in line
    for word in ("-drive", "-netdev", "virtio-blk", "-virtfs", "hostfwd"):
        assert word not in line


@pytest.mark.parametrize(
    ("words", "rest", "results"),
    [
        (["run", "x.yml"], ["x.yml"], "results"),
        (["run", "x.yml", "--results", "/tmp/a"], ["x.yml"], "/tmp/a"),
        (["run", "--results=b", "x.yml", "--seed", "2"], ["x.yml", "--seed", "2"], "b"),
        (["run", "-o", "c", "--", "-o", "x.yml"], ["--", "-o", "x.yml"], "c"),
    ],
)
def test_where_results_go_is_not_for_the_guest_to_know(words: list[str], rest: list[str], results: str) -> None:
    assert results_aside(words, "/there") == (["run", "--results", "/there", *rest], Path(results))


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_names_of_there_become_those_of_here_however_they_come(size: int) -> None:
    written = bytearray()
    stream = Renamed({"/run/job/.results": "out"}, written.extend)
    said = b"record /run/job/.results/a.json\nand /run/job/other /run/jo"
    for at in range(0, len(said), size):
        stream(said[at : at + size])
    stream.flush()
    assert bytes(written) == b"record out/a.json\nand /run/job/other /run/jo"


def test_what_is_no_name_is_not_kept_back() -> None:
    written = bytearray()
    stream = Renamed({"/run": "here"}, written.extend)
    stream(b"50 % /r")
    assert bytes(written) == b"50 % "


@pytest.mark.parametrize("size", [1, 3, 50])
def test_the_longer_of_two_names_is_meant(size: int) -> None:
    written = bytearray()
    stream = Renamed({"/run/job/.results": "out", "/run/job": ""}, written.extend)
    said = b"/run/job/.results/a /run/job/home/b /run/job"
    for at in range(0, len(said), size):
        stream(said[at : at + size])
    stream.flush()
    assert bytes(written) == b"out/a /home/b "
