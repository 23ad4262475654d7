"""The lab VM from the command line: commands, files, verbs that run in it, and everything that can go wrong with it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab_vm import CHECKOUT, COMMAND_TIMEOUT_S, LabVm, command_line, vm_up

from testbed.vm.machine import Machine

pytestmark = [pytest.mark.labvm, pytest.mark.timeout(3600)]

TOPOLOGY = "name: {name}\nscale: {{time: 100000}}\nfabric: {{design: single-switch, hosts: 2, gpus: 1}}\n"


def on_vm(lab_vm: LabVm, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return command_line("--on", f"vm:{lab_vm.machine.name}", *arguments, cwd=cwd)


def test_it_is_up_and_says_how(lab_vm: LabVm) -> None:
    rows = json.loads(command_line("vm", "status", "-f", "json").stdout)
    (row,) = (row for row in rows if row["name"] == lab_vm.machine.name)
    assert row["state"] == "running"
    assert row["accelerator"] in {"kvm", "emulation"}


def test_it_listens_on_the_loopback_alone(lab_vm: LabVm) -> None:
    record = lab_vm.machine.record
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    addresses = {words[1].split(":")[0] for words in listening if int(words[1].split(":")[1], 16) == record.port}
    assert addresses == {"0100007F"}
    six = [line.split()[1] for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    assert record.port not in {int(address.rpartition(":")[2], 16) for address in six}


def test_a_command_and_its_exit_code(lab_vm: LabVm) -> None:
    done = command_line("vm", "exec", "-n", lab_vm.machine.name, "--", "sh", "-c", "uname -r; echo words >&2; exit 5")
    assert (done.returncode, done.stderr) == (5, "words\n")
    record = lab_vm.machine.record
    assert record is not None and done.stdout.strip() == record.kernel


def test_its_clock_survives_a_busy_machine(lab_vm: LabVm) -> None:
    """Not the HPET, which wraps while an emulated CPU stands still."""
    clock = lab_vm.check("cat", "/sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
    assert clock in {"tsc", "kvm-clock"}


def test_a_shell_on_a_terminal(lab_vm: LabVm) -> None:
    line = f"{sys.executable} -m testbed vm ssh -n {lab_vm.machine.name}"
    done = subprocess.run(
        ["script", "-qec", line, "/dev/null"],
        cwd=CHECKOUT,
        input=b"tty; cat /etc/hostname; exit 7\n",
        capture_output=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert b"/dev/pts/" in done.stdout, done
    assert done.returncode == 7
    without = command_line("vm", "ssh", "-n", lab_vm.machine.name)
    assert (without.returncode, "needs a terminal" in without.stderr) == (3, True)


def test_files_go_and_come_back(lab_vm: LabVm, tmp_path: Path) -> None:
    (tmp_path / "there/sub").mkdir(parents=True)
    (tmp_path / "there/sub/file").write_text("content")
    name = ("-n", lab_vm.machine.name)
    assert command_line("vm", "cp", *name, str(tmp_path / "there"), "vm:/tmp/copied").returncode == 0
    assert command_line("vm", "cp", *name, "vm:/tmp/copied", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back/sub/file").read_text() == "content"
    missing = command_line("vm", "cp", *name, "vm:/no/such/file", str(tmp_path / "none"))
    assert (missing.returncode, "/no/such" in missing.stderr) == (2, True)
    nothing = command_line("vm", "cp", *name, str(tmp_path / "none"), "vm:/tmp/")
    assert (nothing.returncode, "none: no such file" in nothing.stderr) == (3, True)


def test_verbs_run_in_it_as_if_it_were_here(lab_vm: LabVm, tmp_path: Path) -> None:
    (tmp_path / "small.yml").write_text(TOPOLOGY.format(name="vmverbs"))
    deployed = on_vm(lab_vm, "deploy", "-t", "small.yml", cwd=tmp_path)
    assert deployed.returncode == 0, deployed.stderr
    assert "vmverbs" not in command_line("list").stdout
    listed = on_vm(lab_vm, "list", "-f", "json", cwd=tmp_path)
    assert [item["name"] for item in json.loads(listed.stdout)] == ["vmverbs"]
    drawn = on_vm(lab_vm, "graph", "-n", "vmverbs", "-k", "dot", "-o", str(tmp_path / "drawn.dot"), cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert "graph" in (tmp_path / "drawn.dot").read_text()
    assert on_vm(lab_vm, "exec", "p1-s1-h1", "--", "sh", "-c", "exit 9", cwd=tmp_path).returncode == 9
    assert on_vm(lab_vm, "destroy", "-n", "vmverbs", cwd=tmp_path).returncode == 0
    assert lab_vm.check("sh", "-c", "ls -A /root/.testbed-work").strip() == ""


def test_a_mistake_in_a_file_is_told_with_its_place(lab_vm: LabVm, tmp_path: Path) -> None:
    (tmp_path / "bad.yml").write_text("name: bad\nfabrik: {}\n")
    done = on_vm(lab_vm, "validate", "-t", "bad.yml", cwd=tmp_path)
    assert done.returncode == 3
    assert "bad.yml:2:1" in done.stderr


def test_its_disk_is_full(lab_vm: LabVm, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    lab_vm.check("mount", "-t", "tmpfs", "-o", "size=64k", "full", "/mnt")
    done = command_line("vm", "cp", "-n", lab_vm.machine.name, str(tmp_path / "file"), "vm:/mnt/file")
    lab_vm.check("umount", "/mnt")
    assert done.returncode == 2
    assert "full" in done.stderr


def test_it_cannot_be_up_twice(lab_vm: LabVm) -> None:
    done = command_line("vm", "up", "-n", lab_vm.machine.name)
    assert done.returncode == 3
    assert "is up already" in done.stderr


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command_line("vm", "up", "-n", f"test-port-{os.getpid()}", "--port", str(port))
    assert done.returncode == 3
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr
    assert not Machine(f"test-port-{os.getpid()}").directory.exists()


def test_no_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_QEMU", "/no/such/qemu")
    done = command_line("vm", "up", "-n", f"test-qemu-{os.getpid()}")
    assert done.returncode == 3
    assert "no QEMU" in done.stderr


def test_an_interrupted_start_leaves_nothing() -> None:
    name = f"test-int-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed", "vm", "up", "-n", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    machine = Machine(name)
    while machine.record is None:
        assert process.poll() is None
        time.sleep(0.05)
    record = machine.record
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert not machine.directory.exists()
    assert not Path(f"/proc/{record.pid}").exists()


class TestKilled:
    """QEMU dies while a verb runs in it."""

    def test_what_ran_says_so_and_the_next_start_works(self) -> None:
        name = f"test-kill-{os.getpid()}"
        machine = Machine(name)
        try:
            started = vm_up(name)
            assert started.returncode == 0, started.stderr
            process = subprocess.Popen(
                [
                    *(sys.executable, "-u", "-m", "testbed", "vm", "exec", "-n", name),
                    *("--", "sh", "-c", "echo on; exec sleep 3600"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stdout.readline() == "on\n"
            record = machine.record
            os.kill(record.pid, signal.SIGKILL)
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 2
            assert "broke" in errors
            asked = command_line("vm", "exec", "-n", name, "--", "true")
            assert asked.returncode == 3
            assert "has ended" in asked.stderr
            again = vm_up(name)
            assert again.returncode == 0, again.stderr
            assert command_line("vm", "exec", "-n", name, "--", "true").returncode == 0
        finally:
            assert command_line("vm", "down", "-n", name).returncode == 0
        assert not machine.directory.exists()
