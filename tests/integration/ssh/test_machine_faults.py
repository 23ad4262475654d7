"""What goes wrong with the lab VM: each a clear error, nothing left behind, and the next start works.

QEMU is a program of ours that does as QEMU does (fake_qemu.py); keepers, keys, sockets, files and SSH are real.
"""

import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_qemu
import pytest

from testbed.base.errors import CapabilityError
from testbed.base.files import CHECKOUT
from testbed.vm import emulator
from testbed.vm.emulator import Emulator, find_emulator, kvm_lacks
from testbed.vm.errors import ConnectionLost, ImageError, MachineError
from testbed.vm.image.build import DISK, INITRAMFS, KERNEL, VmImage
from testbed.vm.image.recipe import load_recipe
from testbed.vm.image.vagrant_box import write_box
from testbed.vm.machine import Machine, machines
from testbed.vm.remote import target as remote
from testbed.vm.remote import tethered_command as errand
from testbed.vm.virtual import machine as virtual

pytestmark = pytest.mark.process

ERRAND = str(errand.__file__)
PROGRAM = (sys.executable, str(fake_qemu.__file__))
TIMEOUT_S = 60.0
STARTER = """
import sys
from pathlib import Path
from testbed.vm.emulator import Emulator
from testbed.vm.image.build import VmImage
from testbed.vm.machine import Machine
fake = Emulator(program=(sys.executable, sys.argv[1]), image_tool=(), version="")
image = VmImage(directory=Path(sys.argv[2]), kernel_version="")
Machine("test").up(fake, image, kvm=False, cpus=1, memory_mib=64, timeout_s=600)
"""
FAKE = Emulator(program=PROGRAM, image_tool=("false",), version="99.1.2")


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Machines and cache of this test alone; at its end no process and no directory of a machine may be left."""
    monkeypatch.setenv("TESTBED_VM_DIR", str(tmp_path / "vm"))
    monkeypatch.setenv("TESTBED_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.chdir(tmp_path)  # the home of whoever logs in
    (tmp_path / "cache").mkdir()
    yield
    left = processes(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
    assert machines() == []
    assert list((tmp_path / "cache").glob("scratch-*")) == []


@pytest.fixture
def image(tmp_path: Path) -> VmImage:
    directory = tmp_path / "image"
    directory.mkdir()
    for name in (DISK, KERNEL, INITRAMFS):
        (directory / name).write_bytes(name.encode())
    return VmImage(directory=directory, kernel_version="7.3")


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Choose what goes wrong with machines that are started from now on."""
    return lambda words: monkeypatch.setenv("FAKE_QEMU", words)


def processes(directory: Path) -> list[int]:
    """Those that have the directory in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(directory).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def start(image: VmImage, *, port: int | None = None, timeout_s: float = TIMEOUT_S) -> Machine:
    """A machine that is up."""
    machine = Machine("test")
    machine.up(FAKE, image, kvm=False, cpus=1, memory_mib=64, port=port, timeout_s=timeout_s).__exit__()
    return machine


def starts_again(image: VmImage) -> None:
    """After whatever it was, the next start works, and ends without a trace."""
    machine = start(image)
    with machine.connect() as session:
        output = bytearray()
        assert session.run(["echo", "on"], errand_path=ERRAND, stdout=output.extend) == 0
        assert output == b"on\n"
    assert machine.down()
    assert not machine.down()
    assert list(machine.directory.parent.iterdir()) == []


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "testbed", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def test_its_files_are_nobody_elses_and_its_keys_are_new_each_time(image: VmImage) -> None:
    machine = start(image)
    assert stat.S_IMODE(machine.directory.stat().st_mode) == 0o700
    keys = {path.name: path.read_bytes() for path in machine.directory.glob("*key*")}
    assert len(keys) == 3
    assert {stat.S_IMODE((machine.directory / name).stat().st_mode) for name in keys} == {0o600}
    machine.down()
    start(image)
    assert not {path.read_bytes() for path in machine.directory.glob("*key*")} & set(keys.values())
    machine.down()


def test_it_is_told_to_listen_on_the_loopback_alone(image: VmImage) -> None:
    machine = start(image)
    record = machine.record
    options = Path(f"/proc/{record.pid}/cmdline").read_bytes().decode().split("\0")
    assert [word for word in options if "hostfwd" in word] == [f"user,id=net,hostfwd=tcp:127.0.0.1:{record.port}-:22"]
    (qmp,) = (word for word in options if word.startswith("unix:"))
    assert str(machine.directory) in qmp
    assert not {"-vnc", "-spice", "-monitor", "-gdb", "-s", "-chardev"} & set(options)
    machine.down()


def test_the_project_has_no_key() -> None:
    """Neither of whoever enters the lab VM, nor of the machine itself; the world's, of boxes, is a public one."""
    from testbed.vm.image.checkout import checkout_files

    begin = b"-----BEGIN OPENSSH PRIVATE" + b" KEY-----"
    assert [name for name, path in checkout_files() if begin in path.read_bytes()] == []


def test_it_ends_while_it_starts(image: VmImage, fault: Callable[[str], None]) -> None:
    fault("words qemu: no memory for you")
    with pytest.raises(MachineError, match=r"ended while it started\n.*no memory for you"):
        start(image)
    fault("")
    starts_again(image)


def test_somebody_takes_the_port_in_between(image: VmImage, fault: Callable[[str], None]) -> None:
    fault("words qemu: Could not set up host forwarding rule 'tcp:127.0.0.1:2222-:22'")
    with pytest.raises(MachineError, match=r"port 2222 of 127\.0\.0\.1 is in use"):
        start(image, port=2222)
    fault("")
    starts_again(image)


def test_a_port_in_use(image: VmImage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match=rf"port {port} of 127\.0\.0\.1 is in use"):
            start(image, port=port)
        assert machines() == []
    starts_again(image)


def test_it_never_answers(image: VmImage, fault: Callable[[str], None]) -> None:
    fault("silent")
    with pytest.raises(MachineError, match="did not answer within 1 s"):
        start(image, timeout_s=1.0)
    fault("")
    starts_again(image)


def test_it_is_killed_while_something_runs_in_it(image: VmImage) -> None:
    machine = start(image)
    record = machine.record
    assert record is not None
    with machine.connect() as session, pytest.raises(ConnectionLost, match="broke"):
        session.run(
            ["sh", "-c", "echo on; exec sleep 3600"],
            errand_path=ERRAND,
            stdout=lambda _: os.kill(record.pid, signal.SIGKILL),
        )
    status = machine.status()
    assert (status.state, status.detail) == ("ended", "its process was killed")
    with pytest.raises(MachineError, match="has ended"):
        machine.connect()
    told = command_line("vm", "exec", "-n", "test", "--", "true")
    assert (told.returncode, "the lab VM has ended" in told.stderr) == (3, True)
    assert "testbed vm up starts a new one" in told.stderr
    starts_again(image)


def test_it_is_killed_while_a_scenario_runs_in_it(
    image: VmImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`testbed --on vm run`: the verb over there is a program that begins and does not end."""
    monkeypatch.setattr(remote, "synchronise", lambda _: False)
    far, begun, here = tmp_path / "far", tmp_path / "begun", tmp_path / "here"
    (far / ".venv/bin").mkdir(parents=True)
    (far / "testbed").symlink_to(CHECKOUT / "testbed")
    program = far / ".venv/bin/testbed"
    program.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 3600\n")
    program.chmod(0o755)
    here.mkdir()
    (here / "small.yml").write_text("name: small\n")
    machine = start(image)
    record = machine.record
    assert record is not None

    def cut() -> None:
        until(begun.exists)
        os.kill(record.pid, signal.SIGKILL)

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(ConnectionLost, match="broke"):
        remote.run_there(remote.RemoteTarget(machine="test", path=str(far)), ["run", "small.yml"], here)
    cutter.join()
    assert [path.name for path in here.iterdir()] == ["small.yml"]
    assert machine.status().state == "ended"
    starts_again(image)


def test_the_connection_drops_and_the_machine_stays(image: VmImage) -> None:
    machine = start(image)
    with machine.connect() as session, pytest.raises(ConnectionLost, match="broke"):
        session.run(
            ["sh", "-c", "echo on; exec sleep 3600"],
            errand_path=ERRAND,
            stdout=lambda _: session._transport.sock.close(),
        )
    with machine.connect() as session:
        assert session.run(["true"], errand_path=ERRAND) == 0
    machine.down()


def test_no_room_for_what_it_writes(image: VmImage, fault: Callable[[str], None], tmp_path: Path) -> None:
    fault("full")
    machine = start(image)
    listed = command_line("vm", "status", "-f", "json")
    (row,) = json.loads(listed.stdout)
    assert (row["state"], row["detail"]) == ("paused", f"the disk of {tmp_path / 'cache'} is full")
    assert listed.returncode == 1
    with pytest.raises(MachineError, match=r"paused: the disk of .* is full"):
        machine.connect()
    with pytest.raises(MachineError, match="is up already"):
        start(image)
    machine.down()
    fault("")
    starts_again(image)


def test_whoever_starts_it_is_killed(image: VmImage, fault: Callable[[str], None], tmp_path: Path) -> None:
    """It is found by what it recorded, and `down` ends it."""
    fault("silent")
    starter = subprocess.Popen([sys.executable, "-c", STARTER, PROGRAM[1], str(image.directory)])
    machine = Machine("test")
    until(lambda: machine.record is not None)
    starter.kill()
    starter.wait()
    assert machine.status().state == "running"
    assert command_line("vm", "down", "-n", "test").stdout == "test: down\n"
    assert processes(tmp_path) == []
    fault("")
    starts_again(image)


@pytest.mark.parametrize("verb", ["up", "down"])
def test_whoever_starts_it_is_killed_before_it_is_recorded(image: VmImage, tmp_path: Path, verb: str) -> None:
    machine = start(image)
    record = machine.record
    assert record is not None
    (machine.directory / "machine.json").write_text('{"name": "te')
    if verb == "up":
        start(image)
    assert machine.down()
    until(lambda: not processes(tmp_path))


def until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.02)):
        if condition():
            return
        waiting.wait(0.02)
    raise AssertionError("it did not come to that")


def run_job(image: VmImage, tmp_path: Path, *, timeout_s: float = TIMEOUT_S) -> tuple[virtual.JobOutcome, bytes]:
    said, warned = bytearray(), bytearray()
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    outcome = virtual.run_job(
        FAKE,
        image,
        virtual.VirtualJob(arguments=["run", "none.yml"], directory=work, results=tmp_path / "results"),
        stdout=said.extend,
        stderr=warned.extend,
        timeout_s=timeout_s,
    )
    return outcome, bytes(said)


def test_a_job_is_done(image: VmImage, tmp_path: Path) -> None:
    outcome, said = run_job(image, tmp_path)
    assert (outcome.status, outcome.guest_s, said) == (0, 30.0, fake_qemu.SAID)
    assert outcome.files == (tmp_path / "results/one/record.json",)


def test_a_machine_killed_before_its_job_is_done(image: VmImage, fault: Callable[[str], None], tmp_path: Path) -> None:
    fault("killed")
    with pytest.raises(MachineError, match=r"ended before its job did\nthe console's last words"):
        run_job(image, tmp_path)
    assert not (tmp_path / "results").exists()
    fault("")
    assert run_job(image, tmp_path)[0].status == 0


def test_a_job_that_takes_too_long(image: VmImage, fault: Callable[[str], None], tmp_path: Path) -> None:
    fault("silent")
    with pytest.raises(MachineError, match="did not finish within 0 s"):
        run_job(image, tmp_path, timeout_s=0.1)


def test_no_room_for_a_job(image: VmImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(virtual, "_write_job", full)
    with pytest.raises(ImageError, match=rf"no space left on the disk of {tmp_path / 'cache'}"):
        run_job(image, tmp_path)


def test_no_room_for_results(image: VmImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(virtual.workplace, "unpack", full)
    with pytest.raises(ImageError, match=rf"no space left on the disk of {tmp_path / 'results'}"):
        run_job(image, tmp_path)


def qemu(directory: Path) -> str:
    """The fake as a program of one word, as $TESTBED_QEMU names it."""
    program = directory / "qemu"
    program.write_text(f'#!/bin/sh\nexec {" ".join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_there_is_no_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CapabilityError, match="no QEMU in the cache"):
        find_emulator(load_recipe())
    monkeypatch.setenv("TESTBED_QEMU", "/no/such/qemu")
    with pytest.raises(CapabilityError, match=r"TESTBED_QEMU is /no/such/qemu"):
        find_emulator(load_recipe())
    monkeypatch.setenv("TESTBED_QEMU", "false")
    with pytest.raises(CapabilityError, match=r"QEMU does not run: .*false"):
        find_emulator(load_recipe())
    monkeypatch.setenv("TESTBED_QEMU", qemu(tmp_path))
    assert find_emulator(load_recipe()).version == "99.1.2"


def test_a_qemu_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_QEMU", qemu(tmp_path))
    monkeypatch.setenv("FAKE_QEMU_VERSION", "7.2.22")
    with pytest.raises(CapabilityError, match=r"QEMU 7\.2\.22 is older than 8\.1"):
        find_emulator(load_recipe())


class TestKvm:
    """Tried, and not for long; once a boot."""

    @pytest.fixture
    def device(self, tmp_path: Path) -> Path:
        path = tmp_path / "kvm"
        path.touch()
        return path

    def test_it_is_not_there(self, image: VmImage, tmp_path: Path) -> None:
        assert kvm_lacks(FAKE, image, device=tmp_path / "kvm") == f"no {tmp_path / 'kvm'}"

    def test_it_works_and_is_asked_once(self, image: VmImage, device: Path, fault: Callable[[str], None]) -> None:
        assert kvm_lacks(FAKE, image, device=device) == ""
        fault("words qemu: this would be seen")
        assert kvm_lacks(FAKE, image, device=device) == ""

    def test_it_refuses(self, image: VmImage, device: Path, fault: Callable[[str], None]) -> None:
        fault("words qemu-system-x86_64: failed to initialize kvm: Permission denied")
        lacks = kvm_lacks(FAKE, image, device=device)
        assert lacks == "a kernel did not start under KVM: failed to initialize kvm: Permission denied"
        fault("")
        other = VmImage(directory=image.directory, kernel_version="7.4")
        assert kvm_lacks(FAKE, other, device=device) == ""

    def test_it_hangs(
        self, image: VmImage, device: Path, fault: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(emulator, "KVM_PROBE_S", 0.5)
        fault("silent")
        assert "did not start under KVM within" in kvm_lacks(FAKE, image, device=device)


def copying(image: VmImage) -> Emulator:
    """An emulator whose image tool copies."""
    copy = "import shutil, sys; shutil.copyfile(sys.argv[-2], sys.argv[-1])"
    return Emulator(program=PROGRAM, image_tool=(sys.executable, "-c", copy), version="")


def test_a_box_has_all_that_it_starts_from(image: VmImage, tmp_path: Path) -> None:
    target = tmp_path / "own.box"
    write_box(copying(image), image, target)
    with tarfile.open(target) as tar:
        names = tar.getnames()
        metadata = tar.extractfile("metadata.json")
        assert metadata is not None
        assert json.load(io.TextIOWrapper(metadata)) == {"provider": "libvirt", "format": "qcow2", "virtual_size": 1}
    assert sorted(names) == sorted(["Vagrantfile", "box.img", "metadata.json", KERNEL, INITRAMFS])


def test_a_box_is_whole_or_not_there(image: VmImage, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="qemu-img failed"):
        write_box(FAKE, image, tmp_path / "own.box")
    with pytest.raises(OSError, match="No such file"):
        write_box(copying(image), image, tmp_path / "no/such/own.box")
    assert list(tmp_path.glob("*.box*")) == []
