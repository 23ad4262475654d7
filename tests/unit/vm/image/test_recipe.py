"""What an image is made from, and that its name changes with it."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from testbed.base.errors import CapabilityError
from testbed.base.installation.packages import packages_of
from testbed.vm.image.recipe import CHECKOUT, load_recipe, version_numbers


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(CHECKOUT / "images", tmp_path / "images")
    shutil.copyfile(CHECKOUT / "pyproject.toml", tmp_path / "pyproject.toml")
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_same_inputs_have_the_same_name(tree: Path) -> None:
    assert load_recipe(tree).fingerprint == load_recipe(CHECKOUT).fingerprint


@pytest.mark.parametrize(
    ("file", "old", "new", "base_too"),
    [
        ("images/versions.toml", 'size = "6G"', 'size = "8G"', False),
        ("images/vm/root/etc/inittab", "respawn", "once", False),
        ("images/vm/before-packages", "set -eu", "set -e", True),
        ("pyproject.toml", "jinja2>=3.1", "jinja2>=3.2", False),
        ("pyproject.toml", "uet_read_bw =", "uet_reads =", False),
    ],
)
def test_every_input_changes_the_name(tree: Path, file: str, old: str, new: str, base_too: bool) -> None:
    before = load_recipe(tree)
    change(tree / file, old, new)
    after = load_recipe(tree)
    assert after.fingerprint != before.fingerprint
    assert (after.base_fingerprint != before.base_fingerprint) == base_too
    assert after.qemu_fingerprint == before.qemu_fingerprint


def test_settings_of_tools_do_not(tree: Path) -> None:
    before = load_recipe(tree).fingerprint
    change(tree / "pyproject.toml", "line-length = 120", "line-length = 100")
    assert load_recipe(tree).fingerprint == before


def test_another_package_changes_the_name(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_recipe(tree)
    monkeypatch.setattr("testbed.vm.image.recipe.packages_of", lambda image: (*packages_of(image), "another"))
    after = load_recipe(tree)
    assert after.fingerprint != before.fingerprint
    assert after.base_fingerprint != before.base_fingerprint
    assert after.qemu_fingerprint != before.qemu_fingerprint


def test_what_only_docker_images_need_does_not(tree: Path) -> None:
    before = load_recipe(tree).fingerprint
    (tree / "images/versions.toml").open("a").write('\n[other]\nx = "y"\n')
    assert load_recipe(tree).fingerprint == before


def test_without_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="no recipe"):
        load_recipe(tmp_path)


def test_the_kernel_is_new_enough_for_rxe_in_namespaces() -> None:
    assert load_recipe().oldest_kernel >= (7, 1)
    assert version_numbers("7.3.4+deb13-amd64") == (7, 3, 4)
    assert version_numbers("unknown") == ()


def test_what_an_image_starts_of_ours_is_there() -> None:
    """The files of images name modules of the package, and nothing else would notice that one has moved."""
    texts = [path.read_text() for path in (CHECKOUT / "images").rglob("*") if path.is_file() and path.suffix != ".svg"]
    named = {name for text in texts for name in re.findall(r"-m (testbed(?:\.\w+)*)", text)}
    assert {"testbed.vm.virtual.job", "testbed.base.installation.environment"} <= named
    assert [name for name in sorted(named) if find_spec(name) is None] == []
