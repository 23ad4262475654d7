"""Folders of unit tests are those of the packages, so that tests are found where their module is; none is large."""

from collections import Counter
from pathlib import Path

UNIT = Path(__file__).parent
ROOT = UNIT.parents[1]
NOT_PACKAGES = {"docs", "support"}
"""What is tested here and is no package of testbed."""


def test_every_folder_of_unit_tests_is_a_package() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")} - {Path()}
    of_packages = {folder for folder in folders if folder.parts[0] not in NOT_PACKAGES}
    assert len(of_packages) > 20
    assert [
        str(folder) for folder in sorted(of_packages) if not (ROOT / "testbed" / folder / "__init__.py").exists()
    ] == []


def test_beside_the_folders_stand_tests_of_modules_that_have_none() -> None:
    of_the_package = {"circles", "docstrings", "features", "mirror", "names"}
    modules = {path.stem.removeprefix("test_") for path in UNIT.glob("test_*.py")} - of_the_package
    assert [name for name in sorted(modules) if not (ROOT / "testbed" / f"{name}.py").exists()] == []


def test_files_and_folders_are_small_enough_to_be_read() -> None:
    modules = [path for root in ("testbed", "tests") for path in (ROOT / root).rglob("*.py")]
    assert [str(path) for path in modules if path.read_text().count("\n") >= 600] == []
    folders = Counter(path.parent for path in (ROOT / "testbed").rglob("*.py") if path.name != "__init__.py")
    assert [str(folder) for folder, count in folders.items() if count > 20] == []
