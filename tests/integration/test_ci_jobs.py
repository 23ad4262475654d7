"""The files for GitHub Actions and GitLab in the guide: they are what both services take, and their gate needs no root.

Their jobs with a lab run in the image that they name: `tests/integration/docker/test_runner_image.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ci_jobs import (
    GITHUB,
    GITLAB,
    GUIDE,
    commands_of,
    container_options,
    github_options,
    gitlab_runner,
    job_files,
    make_repository,
)

from testbed.lab.core.drivers.probing.machine import CAPABILITIES

pytestmark = pytest.mark.process

DOCKERS_OWN = {"NET_RAW"}
"""What a lab needs and Docker gives any container."""
IN_TIME = {"SYS_NICE", "IPC_LOCK"}
"""What only pauses need."""


@pytest.mark.parametrize(
    ("file", "schema", "mistake"),
    [(GITHUB, "github-workflows", ("runs-on:", "runs-at:")), (GITLAB, "gitlab-ci", ("when: always", "when: often"))],
)
def test_files_are_what_the_service_takes(file: str, schema: str, mistake: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed: ./lab test installs it")
    path = tmp_path / "jobs.yml"
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    text = job_files()[file]
    path.write_text(text)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert mistake[0] in text
    path.write_text(text.replace(*mistake))
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 1, "a schema that takes anything"


@pytest.mark.parametrize("file", [GITHUB, GITLAB])
def test_the_gate_needs_no_root_and_leaves_what_ci_reads(file: str, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repository")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "testbed").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m testbed "$@"\n')
    (programs / "testbed").chmod(0o755)
    commands = commands_of(file, "gate")
    assert any("--backend simulation" in command for command in commands)
    # A user without a name or a capability, who yet may read what is root's.
    nobody = ["unshare", "--user", "--"] if os.geteuid() == 0 else []
    for command in commands:
        done = subprocess.run(
            [*nobody, "bash", "-e", "-c", command],
            cwd=repository,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TESTBED_STATE_DIR": str(tmp_path / "none")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    (junit,) = repository.glob("results/*/junit.xml")
    assert "<testcase" in junit.read_text()


def test_both_services_and_the_table_name_the_capabilities_that_a_lab_needs() -> None:
    capabilities, security, init = container_options(github_options())
    assert init and "FF_USE_INIT_WITH_DOCKER_EXECUTOR" in job_files()[GITLAB]
    runner = gitlab_runner()
    assert (runner["cap_add"], runner["security_opt"]) == (capabilities, security)
    assert "privileged" not in runner
    page = GUIDE.read_text()
    assert [name for name in capabilities if f"`--cap-add {name}`" not in page] == []
    needed = {name.removeprefix("CAP_") for name in CAPABILITIES} - DOCKERS_OWN
    assert set(capabilities) == needed | IN_TIME
