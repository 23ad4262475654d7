"""The jobs for GitHub Actions and GitLab in the guide, as tests run them: files, commands, options of containers."""

import argparse
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from doc_blocks import ROOT, read_blocks

GUIDE = ROOT / "docs/guides/ci-jobs.md"
FABRIC_GUIDE = ROOT / "docs/guides/ci-with-pytest.md"
GITHUB, GITLAB = ".github/workflows/fabric.yml", ".gitlab-ci.yml"
REPOSITORY = (
    "scenarios/incast-trimming.yml",
    "scenarios/rail-permutation.yml",
    "topologies/demo.yml",
    "topologies/hand-written.yml",
    "topologies/uec-spray.yml",
)
"""What the repository of the guide has, beside the test of a fabric that the other guide writes."""


def job_files() -> Mapping[str, str]:
    """The files of the guide by their names."""
    return {block.file: block.text for block in read_blocks(GUIDE) if block.file in (GITHUB, GITLAB)}


def commands_of(file: str, job: str) -> list[str]:
    """The commands of a job, in order. Steps that use an action are GitHub's own."""
    text = yaml.safe_load(job_files()[file])
    if file == GITLAB:
        return list(text[job]["script"])
    return [step["run"] for step in text["jobs"][job]["steps"] if "run" in step]


def github_options() -> list[str]:
    """The words that GitHub gives to `docker create` for the job with a lab."""
    options: str = yaml.safe_load(job_files()[GITHUB])["jobs"]["lab"]["container"]["options"]
    return options.split()


def container_options(words: Sequence[str]) -> tuple[list[str], list[str], bool]:
    """The capabilities and security options that words of Docker's command line say, and whether there is an init;
    others are refused."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--init", action="store_true")
    parser.add_argument("--cap-add", action="append", default=[])
    parser.add_argument("--security-opt", action="append", default=[])
    found = parser.parse_args(list(words))
    return found.cap_add, found.security_opt, found.init


def gitlab_runner() -> Mapping[str, Any]:
    """The section `runners.docker` of config.toml in the guide."""
    (text,) = re.findall(r"^```toml\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (runner,) = tomllib.loads(text)["runners"]
    docker: Mapping[str, Any] = runner["docker"]
    return docker


def make_repository(directory: Path) -> Path:
    """Make a repository as the guide supposes it."""
    for name in REPOSITORY:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, directory / name)
    (directory / "tests").mkdir()
    (test,) = (block.text for block in read_blocks(FABRIC_GUIDE) if block.file == "test_fabric.py")
    (directory / "tests/test_fabric.py").write_text(test)
    return directory
