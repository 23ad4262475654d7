"""Our own images of containers, for nodes and for CI jobs: built by an engine from `images/`, in the versions that
`images/versions.toml` says.

They stand on an image of a registry, or, where none can be reached, on a minimal Debian that mmdebstrap makes and the
engine imports. An image says in a label what it was made from; one that would come out the same is not built again.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from testbed.base.compiled.finder import is_pure
from testbed.base.errors import CapabilityError, DriverError
from testbed.base.files import CHECKOUT
from testbed.base.installation.packages import DebianImage, packages_of
from testbed.base.installation.wheels import WantedWheels
from testbed.base.names import choice_hint
from testbed.base.programs import captured
from testbed.base.rows import column
from testbed.base.units import ByteCount
from testbed.base.version import __version__
from testbed.lab.core.model.containers import HOST_IMAGE, SWITCH_IMAGE
from testbed.lab.features.containers.engine import ContainerEngine, answers
from testbed.lab.features.containers.images.debian_mirror import mirror
from testbed.lab.features.containers.images.mmdebstrap import KEYRING, mmdebstrap_command, mmdebstrap_options

RUNNER = "runner"
"""The recipe of the image that CI jobs run in: no node is made of it, and it is built by its name alone."""
IMAGES: Mapping[str, str] = {"host": HOST_IMAGE, "switch": SWITCH_IMAGE, RUNNER: "testbed/runner"}
"""Name of each recipe below `images/`, and of the image it makes."""
BASE_IMAGE = "testbed/base"
INPUTS_LABEL = "org.testbed.inputs"
"""The hash of what an image was made from."""
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
BOOTSTRAP_TIMEOUT_S = 840
BUILD_TIMEOUT_S = 1200

Tell = Callable[[str], None]


class Base(StrEnum):
    """The origin of the lowest layer of an image."""

    AUTO = "auto"
    REGISTRY = "registry"
    MMDEBSTRAP = "mmdebstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that one image is made from.

    `files` are those of the build's context, by name; `inputs` the hash of it all. `wheels` are the Python packages
    that it is given, for the suite's Python, and `extras` those of testbed's that it has.
    """

    image: str
    base: str
    suite: str
    packages: tuple[str, ...]
    files: Mapping[str, Path]
    inputs: str
    extras: tuple[str, ...] = ()
    wheels: WantedWheels | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageStatus:
    """`state`: "missing", "current", or "outdated" where its inputs have changed since. Sizes in bytes."""

    image: str
    state: str
    id: str = column(value=lambda row: row.id.removeprefix("sha256:"), default="")
    size_bytes: int = column(
        "size", value=lambda row: str(ByteCount(row.size_bytes)) if row.size_bytes else "", default=0
    )
    created: str = column(value=lambda row: row.created.partition(".")[0], default="")

    @property
    def size(self) -> str:
        """Its size for people; "" for an image that is missing."""
        return str(ByteCount(self.size_bytes)) if self.size_bytes else ""


def load_recipe(name: str, checkout: Path = CHECKOUT) -> Recipe:
    """The recipe of `IMAGES[name]`. Raises `CapabilityError` without a checkout: an installed wheel has none."""
    directory, versions_file = checkout / "images" / name, checkout / "images/versions.toml"
    if not directory.is_dir() or not versions_file.is_file():
        raise CapabilityError(
            f"no recipe of the image {name} in {checkout}/images",
            missing="images/versions.toml",
            hint="run testbed from a checkout of the project (./lab)",
        )
    versions = tomllib.loads(versions_file.read_text())
    docker = versions["docker"]
    files = {str(path.relative_to(directory)): path for path in _files(directory)}
    for source in docker["files"].get(name, ()):
        files |= {str(path.relative_to(checkout)): path for path in _files(checkout / source)}
    packages, suite = packages_of(DebianImage[name.upper()]), versions["debian"]["suite"]
    extras = tuple(docker["extras"].get(name, ()))
    digest = hashlib.sha256(repr((docker["base"], suite, packages)).encode())
    if extras:
        digest.update(repr((extras, is_pure())).encode())
    for file, path in sorted(files.items()):
        digest.update(repr((file, os.access(path, os.X_OK), path.read_bytes())).encode())
    return Recipe(
        image=IMAGES[name],
        base=docker["base"],
        suite=suite,
        packages=packages,
        files=files,
        inputs=digest.hexdigest()[:16],
        extras=extras,
        wheels=WantedWheels.of(checkout, extras) if extras else None,
    )


def _files(path: Path) -> Iterator[Path]:
    """A file, or all files below a directory but Python's compiled ones."""
    if path.is_file():
        yield path
        return
    for item in sorted(path.rglob("*")):
        if item.is_file() and "__pycache__" not in item.parts:
            yield item


def image_status(engine: ContainerEngine, name: str, checkout: Path = CHECKOUT) -> ImageStatus:
    """Tell whether the engine has one of our images, and of today's inputs."""
    from docker.errors import ImageNotFound

    recipe = load_recipe(name, checkout)
    try:
        with answers(f"image {recipe.image}"):
            found = engine.client.images.get(recipe.image)
    except ImageNotFound:
        return ImageStatus(image=recipe.image, state="missing")
    current = (found.labels or {}).get(INPUTS_LABEL) == recipe.inputs
    return ImageStatus(
        image=recipe.image,
        state="current" if current else "outdated",
        id=str(found.short_id),
        size_bytes=int(found.attrs["Size"]),
        created=str(found.attrs["Created"]),
    )


def outdated_images(engine: ContainerEngine, images: Iterable[str]) -> list[str]:
    """Return those of `images` that are ours and would come out differently today; none where there is no checkout to
    ask."""
    wanted = set(images)
    try:
        found = [image_status(engine, name) for name, image in IMAGES.items() if image in wanted]
    except CapabilityError:
        return []
    return [status.image for status in found if status.state == "outdated"]


def build_image(
    engine: ContainerEngine,
    name: str,
    *,
    base: Base = Base.AUTO,
    rebuild: bool = False,
    checkout: Path = CHECKOUT,
    tell: Tell = lambda _: None,
) -> bool:
    """Build `IMAGES[name]`; False where the engine has it as it would come out. `tell` hears of each step.

    Raises `CapabilityError` for what is missing here, `DriverError` with the build's last words where it fails.
    """
    if not rebuild and image_status(engine, name, checkout).state == "current":
        return False
    recipe = load_recipe(name, checkout)
    below = _ensure_base(engine, recipe, base, rebuild=rebuild, tell=tell)
    tell(f"building {recipe.image} on {below}")
    _docker_build(engine, recipe, below, tell)
    return True


def _docker_build(engine: ContainerEngine, recipe: Recipe, below: str, tell: Tell) -> None:
    """`docker build`, over the engine's own interface. Its steps see the host's network: there is none of Docker's."""
    with tempfile.TemporaryDirectory(prefix="testbed-wheels-", dir="/var/tmp") as directory:
        files = dict(recipe.files)
        if recipe.wheels is not None:
            tell("fetching Python packages")
            files |= {f"wheels/{path.name}": path for path in _fetch(recipe.wheels, Path(directory))}
        _build_of(engine, recipe, below, files, tell)


def _fetch(wheels: WantedWheels, directory: Path) -> list[Path]:
    """Fetch wheels with this machine's own pip and its settings. Raises `DriverError` with its last words."""
    for command in wheels.commands(directory):
        done = captured(command)
        if done.returncode:
            said = "\n".join(done.stderr.strip().splitlines()[-5:])
            raise DriverError(f"pip could not fetch the Python packages: {said}", operation="pip download")
    return sorted(directory.iterdir())


def _build_of(engine: ContainerEngine, recipe: Recipe, below: str, files: Mapping[str, Path], tell: Tell) -> None:
    arguments = {"BASE": below, "PACKAGES": " ".join(recipe.packages)}
    if recipe.extras:
        arguments |= {"EXTRAS": ",".join(recipe.extras), "TESTBED_PURE": str(int(is_pure()))}
    for key in PROXIES:
        if value := os.environ.get(key, os.environ.get(key.upper(), "")):
            arguments[key] = value
    labels = {INPUTS_LABEL: recipe.inputs, "org.testbed.version": __version__}
    said: list[str] = []
    api: Any = engine.client.api
    with answers(f"building {recipe.image}"):
        for line in api.build(
            fileobj=io.BytesIO(_context(files)),
            custom_context=True,
            tag=recipe.image,
            buildargs=arguments,
            labels=labels,
            network_mode="host",
            rm=True,
            forcerm=True,
            decode=True,
            timeout=BUILD_TIMEOUT_S,
        ):
            if error := line.get("error"):
                last = "".join(said[-30:]).strip()
                raise DriverError(f"building {recipe.image} failed: {error.strip()}\n{last}", operation="docker build")
            if text := line.get("stream", ""):
                said.append(text)
                if text.startswith("Step "):
                    tell(text.strip())


def _context(files: Mapping[str, Path]) -> bytes:
    """The context of a build as a tar archive that depends on names and contents alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755 if os.access(path, os.X_OK) else 0o644
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


# --- the base ------------------------------------------------------------------------------------------


def _ensure_base(engine: ContainerEngine, recipe: Recipe, base: Base, *, rebuild: bool, tell: Tell) -> str:
    """The image that ours stand on, brought here: the registry's, or one that is made."""
    from docker.errors import ImageNotFound

    own = f"{BASE_IMAGE}:{recipe.suite}"
    for known in {Base.REGISTRY: (recipe.base,), Base.MMDEBSTRAP: (own,), Base.AUTO: (recipe.base, own)}[base]:
        try:
            with answers(f"image {known}"):
                engine.client.images.get(known)
        except ImageNotFound:
            continue
        if not rebuild:
            return known
    if base is not Base.MMDEBSTRAP:
        tell(f"pulling {recipe.base}")
        try:
            with answers(f"pulling {recipe.base}"):
                engine.client.images.pull(recipe.base)
            return recipe.base
        except (DriverError, ImageNotFound) as error:
            if base is Base.REGISTRY:
                hint = "`testbed images build --base mmdebstrap` needs no registry of images"
                raise CapabilityError(str(error), missing=recipe.base, hint=hint) from error
            tell(f"no registry of images: {error}")
    tell(f"making {own} with mmdebstrap")
    _bootstrap(engine, recipe.suite, own)
    return own


def _bootstrap(engine: ContainerEngine, suite: str, image: str) -> None:
    """A minimal Debian with apt, imported into the engine."""
    if shutil.which("mmdebstrap") is None or not KEYRING.exists():
        raise CapabilityError(
            "no registry of images can be reached, and mmdebstrap is not installed",
            missing="mmdebstrap",
            hint="apt-get install mmdebstrap debian-archive-keyring",
        )
    with tempfile.TemporaryDirectory(prefix="testbed-image-", dir="/var/tmp") as directory:
        root = Path(directory) / "root.tar"
        try:
            command = [*mmdebstrap_command(), "--variant=apt", *mmdebstrap_options(), suite, str(root), mirror()]
            captured(command, BOOTSTRAP_TIMEOUT_S, check=True)
        except subprocess.CalledProcessError as error:
            said = "\n".join(error.stderr.strip().splitlines()[-5:])
            raise DriverError(f"mmdebstrap could not make {suite}: {said}", operation="mmdebstrap") from error
        except subprocess.TimeoutExpired as error:
            message = f"mmdebstrap was not done after {BOOTSTRAP_TIMEOUT_S} s"
            raise DriverError(message, operation="mmdebstrap") from error
        repository, _, tag = image.partition(":")
        api: Any = engine.client.api
        with answers(f"importing {image}"):
            api.import_image(src=str(root), repository=repository, tag=tag, changes=['CMD ["/bin/sh"]'])


def known_names(names: Sequence[str]) -> tuple[str, ...]:
    """`names` of recipes, for none all that nodes are made of. Raises `CapabilityError` for one that is not known."""
    for name in names:
        if name not in IMAGES:
            raise CapabilityError(f"there is no image {name!r}", missing=name, hint=choice_hint(name, IMAGES))
    return tuple(names) or tuple(name for name in IMAGES if name != RUNNER)
