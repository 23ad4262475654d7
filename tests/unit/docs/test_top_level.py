"""The top level of the project has what it was agreed to have, and nothing else."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
AGREED = {
    *("pyproject.toml", "README.md", "Vagrantfile", "setup.py", "lab", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("testbed", "topologies", "images", "scenarios", "tests", "docs"),
}
MADE = {"build", "dist", "results", "testbed.egg-info"}
"""What work in a checkout leaves there; .gitignore has it."""


def test_nothing_else_stands_there() -> None:
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith((".", "testbed-"))}
    assert found - MADE == AGREED
