"""The verbs of the lab VM, `testbed vm ...`."""

import dataclasses
import os
import sys
import time
from pathlib import Path

from testbed.base.errors import ExitCode, TestbedError
from testbed.base.rows import for_programs, if_known
from testbed.cli import options
from testbed.cli.command import PATH, Group, argument, option

vm = Group("vm", help="The lab VM: Debian with a whole kernel, in QEMU.")
DEFAULT_NAME = "vm"
machine_name = option("-n", "--name", default=DEFAULT_NAME, help="Which one, where there are several.")
SHELL_DIRECTORY = "/srv/testbed"
ERRAND = f"{SHELL_DIRECTORY}/testbed/vm/remote/tethered_command.py"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MachineRow:
    """A lab VM; of one that was not started, only its state."""

    name: str
    state: str
    detail: str
    image: str
    pid: int | None = for_programs(optional=True, default=None)
    ticks: int | None = for_programs(optional=True, default=None)
    port: int | None = if_known()
    accelerator: str | None = if_known()
    cpus: int | None = if_known()
    memory_mib: int | None = if_known()
    kernel: str | None = if_known()
    started: float | None = for_programs(optional=True, default=None)


@vm.command("build")
@option("--rebuild", is_flag=True, help="Even if the cache has it.")
@option("--box", type=PATH, help="Write a Vagrant box (libvirt) of it, too.")
def build(rebuild: bool, box: Path | None) -> None:
    """Build the image from Debian's registry, if the cache does not have it: about four minutes."""
    from testbed.vm.emulator import build_emulator
    from testbed.vm.image.build import build_image
    from testbed.vm.image.recipe import load_recipe

    started = time.monotonic()
    recipe = load_recipe()
    emulator = build_emulator(recipe, rebuild=rebuild)
    image, built = build_image(recipe, _tell, rebuild=rebuild)
    took = f"built in {time.monotonic() - started:.0f} s" if built else "in the cache"
    print(f"image of the lab VM: {took}; Linux {image.kernel_version}, QEMU {emulator.version}; {image.directory}")
    if box is not None:
        from testbed.vm.image.vagrant_box import write_box

        write_box(emulator, image, box)
        print(f"Vagrant box: {box}")


@vm.command("up")
@machine_name
@option("--cpus", type=int, help="Default: those of this machine, up to 4.")
@option("--memory", type=int, default=3072, help="MiB.")
@option("--port", type=int, help="Of 127.0.0.1, for SSH; default: a free one.")
@option("--kvm/--no-kvm", default=None, help="Default: if it works.")
@option("--timeout", type=float, default=180.0, help="Seconds to wait for SSH.")
def up(name: str, cpus: int | None, memory: int, port: int | None, kvm: bool | None, timeout: float) -> None:
    """Start the lab VM, building its image if need be, and wait until it answers."""
    from testbed.vm.emulator import build_emulator, kvm_lacks
    from testbed.vm.image.build import build_image
    from testbed.vm.image.recipe import load_recipe
    from testbed.vm.machine import Machine
    from testbed.vm.remote.target import synchronise

    recipe = load_recipe()
    image, _ = build_image(recipe, _tell)
    emulator = build_emulator(recipe)
    lacks = "told not to use KVM" if kvm is False else kvm_lacks(emulator, image)
    if kvm and lacks:
        raise TestbedError(f"--kvm: {lacks}")
    started = time.monotonic()
    machine = Machine(name)
    with machine.up(
        emulator,
        image,
        kvm=not lacks,
        cpus=cpus or min(4, os.cpu_count() or 1),
        memory_mib=memory,
        port=port,
        timeout_s=timeout,
    ) as session:
        answered = time.monotonic() - started
        synchronise(session)
    how = "KVM" if not lacks else f"emulation ({lacks})"
    print(f"{name}: up in {answered:.0f} s by {how}; Linux {image.kernel_version}; testbed vm exec -- ls")


@vm.command("down")
@machine_name
def down(name: str) -> None:
    """End the lab VM. What it changed is gone: `vm cp` first."""
    from testbed.vm.machine import Machine

    print(f"{name}: {'down' if Machine(name).down() else 'was not up'}")


@vm.command("status", codes={0: "one runs", 1: "none runs"})
@options.format_option
def status(format: options.Format) -> None:
    """Show the lab VMs, how they run, and the image."""
    from testbed.cli.output import emit
    from testbed.vm.errors import ImageError
    from testbed.vm.image.build import find_image
    from testbed.vm.image.recipe import load_recipe
    from testbed.vm.machine import DEFAULT_NAME, Machine, machines

    try:
        image = f"Linux {find_image(load_recipe()).kernel_version}"
    except ImageError as error:
        image = error.message
    rows = []
    for name in machines() or [DEFAULT_NAME]:
        found = Machine(name).status()
        facts = dataclasses.asdict(found.record) if found.record is not None else {}
        rows.append(MachineRow(**{"name": name, **facts, "state": found.state, "detail": found.detail, "image": image}))
    emit(rows, MachineRow, format)
    sys.exit(ExitCode.PASS if any(row.state == "running" for row in rows) else ExitCode.FAIL)


@vm.command("ssh", codes={"own": "that of the shell"})
@machine_name
def ssh(name: str) -> None:
    """Open a shell in the lab VM."""
    from testbed.vm.machine import Machine

    with Machine(name).connect() as session:
        if not sys.stdin.isatty():
            raise TestbedError("vm ssh needs a terminal", hint="testbed vm exec -- COMMAND needs none")
        sys.exit(session.interact([]))


@vm.command(
    "exec",
    context_settings={"ignore_unknown_options": True},
    codes={"own": "that of the command", 127: "there is no such command"},
)
@argument("command", nargs=-1, required=True, metavar="-- CMD...", help="The command and its arguments.")
@machine_name
@option("-C", "--directory", default=SHELL_DIRECTORY, help="Where in it.")
def exec(command: tuple[str, ...], name: str, directory: str) -> None:
    """Run a command in the lab VM."""
    from testbed.vm.machine import Machine

    with Machine(name).connect() as session:
        source = None if sys.stdin.isatty() else sys.stdin.buffer
        sys.exit(session.run(command, errand_path=ERRAND, directory=directory, stdin=source))


@vm.command("cp")
@argument("source", metavar="SOURCE", help="A path here, or vm:PATH in the lab VM.")
@argument("target", metavar="TARGET", help="A path here, or vm:PATH in the lab VM.")
@machine_name
def cp(source: str, target: str, name: str) -> None:
    """Copy a file or a directory; what begins with `vm:` is a path in the lab VM."""
    from testbed.vm.machine import Machine

    inward = target.startswith("vm:")
    if inward == source.startswith("vm:"):
        raise TestbedError("one of SOURCE and TARGET must be in the lab VM: vm:PATH")
    with Machine(name).connect() as session:
        if inward:
            if not Path(source).exists():
                raise TestbedError(f"{source}: no such file")
            session.put(Path(source), target.removeprefix("vm:") or "./")
        else:
            session.get(source.removeprefix("vm:"), Path(target))


def _tell(step: str) -> None:
    print(f"building the image: {step}", file=sys.stderr, flush=True)
