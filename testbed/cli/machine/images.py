"""The verbs `images build` and `images list`: our own images of containers."""

import contextlib
import sys
import time

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import Group, argument, option

images = Group("images", help="Build the images that containers are made from.")


@images.command("build")
@argument("names", nargs=-1, metavar="[host|switch|runner...]", help="Default: host and switch.")
@option("--base", default="auto", help="registry, mmdebstrap (needs no registry of images), or auto.")
@option("--rebuild", is_flag=True, help="Also what is up to date.")
@options.quiet
def build(names: tuple[str, ...], base: str, rebuild: bool, quiet: bool) -> None:
    """Build testbed/host and testbed/switch for nodes, or testbed/runner for CI jobs, in the Docker engine."""
    from testbed.lab.features.containers.engine import ContainerEngine
    from testbed.lab.features.containers.images.container_images import IMAGES, Base, build_image, known_names

    wanted = known_names(names)
    try:
        below = Base(base)
    except ValueError as error:
        raise TestbedError(f"--base {base}: expected {', '.join(Base)}") from error

    def tell(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr)

    with contextlib.closing(ContainerEngine.connect()) as engine:
        for name in wanted:
            started = time.monotonic()
            built = build_image(engine, name, base=below, rebuild=rebuild, tell=tell)
            done = f"built in {time.monotonic() - started:.0f} s" if built else "up to date"
            print(f"{IMAGES[name]}: {done}")


@images.command("list")
@options.format_option
def list_images(format: options.Format) -> None:
    """List our images: whether the engine has them, and as they would be built now."""
    from testbed.cli.output import emit
    from testbed.lab.features.containers.engine import ContainerEngine
    from testbed.lab.features.containers.images.container_images import IMAGES, ImageStatus, image_status

    with contextlib.closing(ContainerEngine.connect()) as engine:
        found = [image_status(engine, name) for name in IMAGES]
    emit(found, ImageStatus, format)
