"""The verbs `images build` and `images list`: our own images of containers."""

import sys
import time
from typing import Annotated

import typer

from testbed.base.errors import TestbedError
from testbed.cli.options import FormatOption, Quiet, parse_format
from testbed.cli.panels import MACHINE, verb_group

app = verb_group("images", MACHINE, "Build the images that containers are made from.")


@app.command()
def build(
    names: Annotated[list[str] | None, typer.Argument(metavar="[host|switch...]", help="Default: all.")] = None,
    base: Annotated[
        str, typer.Option("--base", help="registry, mmdebstrap (needs no registry of images), or auto.")
    ] = "auto",
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Also what is up to date.")] = False,
    quiet: Quiet = False,
) -> None:
    """Build testbed/host and testbed/switch in the Docker engine, from images/."""
    from testbed.lab.features.containers.engine import ContainerEngine
    from testbed.lab.features.containers.images.container_images import IMAGES, Base, build_image, known_names

    wanted = known_names(names or [])
    try:
        below = Base(base)
    except ValueError as error:
        raise TestbedError(f"--base {base}: expected {', '.join(Base)}") from error

    def tell(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr)

    engine = ContainerEngine.connect()
    try:
        for name in wanted:
            started = time.monotonic()
            built = build_image(engine, name, base=below, rebuild=rebuild, tell=tell)
            done = f"built in {time.monotonic() - started:.0f} s" if built else "up to date"
            print(f"{IMAGES[name]}: {done}")
    finally:
        engine.close()


@app.command("list")
def list_images(format: FormatOption = "table") -> None:
    """List our images: whether the engine has them, and as they would be built now."""
    from testbed.base.units import ByteCount
    from testbed.cli.output import emit_rows
    from testbed.lab.features.containers.engine import ContainerEngine
    from testbed.lab.features.containers.images.container_images import IMAGES, image_status

    form = parse_format(format)
    engine = ContainerEngine.connect()
    try:
        found = [image_status(engine, name) for name in IMAGES]
    finally:
        engine.close()
    rows = [
        {
            "image": item.image,
            "state": item.state,
            "id": item.id.removeprefix("sha256:"),
            "size": str(ByteCount(item.size_bytes)) if item.size_bytes else "",
            "created": item.created.partition(".")[0],
        }
        for item in found
    ]
    emit_rows(rows, ["image", "state", "id", "size", "created"], form)
