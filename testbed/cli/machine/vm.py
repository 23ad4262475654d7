"""The verbs of the lab VM, `testbed vm ...`."""

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from testbed.base.errors import TestbedError
from testbed.cli.options import FormatOption, parse_format
from testbed.cli.panels import MACHINE, verb_group

app = verb_group("vm", MACHINE, "The lab VM: Debian with a whole kernel, in QEMU.")
DEFAULT_NAME = "vm"
Name = Annotated[str, typer.Option("-n", "--name", help="Which one, where there are several.")]
SHELL_DIRECTORY = "/srv/testbed"
ERRAND = f"{SHELL_DIRECTORY}/testbed/vm/remote/tethered_command.py"


@app.command()
def build(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Even if the cache has it.")] = False,
    box: Annotated[Path | None, typer.Option("--box", help="Write a Vagrant box (libvirt) of it, too.")] = None,
) -> None:
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


@app.command()
def up(
    name: Name = DEFAULT_NAME,
    cpus: Annotated[int | None, typer.Option("--cpus", help="Default: those of this machine, up to 4.")] = None,
    memory: Annotated[int, typer.Option("--memory", help="MiB.")] = 3072,
    port: Annotated[int | None, typer.Option("--port", help="Of 127.0.0.1, for SSH; default: a free one.")] = None,
    kvm: Annotated[bool | None, typer.Option("--kvm/--no-kvm", help="Default: if it works.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait for SSH.")] = 180.0,
) -> None:
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


@app.command()
def down(name: Name = DEFAULT_NAME) -> None:
    """End the lab VM. What it changed is gone: `vm cp` first."""
    from testbed.vm.machine import Machine

    print(f"{name}: {'down' if Machine(name).down() else 'was not up'}")


@app.command()
def status(format: FormatOption = "table") -> None:
    """Show the lab VMs, how they run, and the image. Exit 1 if none runs."""
    from testbed.cli.output import emit_rows
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
        rows.append({"name": name, "state": found.state, "detail": found.detail, "image": image, **facts})
    columns = ["name", "state", "detail", "accelerator", "cpus", "memory_mib", "port", "kernel", "image"]
    emit_rows(rows, columns, parse_format(format))
    raise typer.Exit(0 if any(row["state"] == "running" for row in rows) else 1)


@app.command()
def ssh(name: Name = DEFAULT_NAME) -> None:
    """Open a shell in the lab VM."""
    from testbed.vm.machine import Machine

    with Machine(name).connect() as session:
        if not sys.stdin.isatty():
            raise TestbedError("vm ssh needs a terminal", hint="testbed vm exec -- COMMAND needs none")
        raise typer.Exit(session.interact([]))


@app.command(context_settings={"ignore_unknown_options": True})
def exec(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    name: Name = DEFAULT_NAME,
    directory: Annotated[str, typer.Option("-C", "--directory", help="Where in it.")] = SHELL_DIRECTORY,
) -> None:
    """Run a command in the lab VM; its exit code is ours."""
    from testbed.vm.machine import Machine

    with Machine(name).connect() as session:
        source = None if sys.stdin.isatty() else sys.stdin.buffer
        raise typer.Exit(session.run(command, errand_path=ERRAND, directory=directory, stdin=source))


@app.command()
def cp(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A path here, or vm:PATH in the lab VM.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A path here, or vm:PATH in the lab VM.")],
    name: Name = DEFAULT_NAME,
) -> None:
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
