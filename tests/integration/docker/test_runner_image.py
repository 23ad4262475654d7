"""The image of CI jobs: in a container with the capabilities that the guide names, and no more, a lab comes up.

The commands are those of the guide's jobs, in a repository as the guide supposes it.
"""

import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ci_jobs import GITHUB, GITLAB, commands_of, container_options, github_options, make_repository

from testbed.lab.features.containers.engine import ContainerEngine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

HOURS = "sleep 7200"
"""What a container does by itself: the services start something like it, and run each step beside it."""


class Job:
    """A container of the image with a repository in it, without a network of the machine's."""

    def __init__(self, client: ContainerEngine, image: str, repository: Path, options: Sequence[str]) -> None:
        capabilities, security, init = container_options(options)
        self._container: Any = client.client.containers.run(
            image,
            ["sh", "-c", HOURS],
            cap_add=capabilities,
            security_opt=security,
            network_mode="none",
            init=init,
            detach=True,
        )
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(repository, "repository")
        assert self._container.put_archive("/srv", buffer.getvalue())

    def run(self, command: str, *, user: str = "") -> tuple[int, str]:
        """Run a step; its exit code, and what it said."""
        code, said = self._container.exec_run(
            ["sh", "-e", "-c", command], workdir="/srv/repository", user=user, environment={"TERM": "dumb"}
        )
        return int(code), said.decode(errors="replace")

    def check(self, command: str, *, codes: tuple[int, ...] = (0,), user: str = "") -> str:
        code, said = self.run(command, user=user)
        assert code in codes, f"{command}: {code}\n{said}"
        return said

    def remove(self) -> None:
        self._container.remove(force=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


@pytest.fixture
def job(client: ContainerEngine, runner_image: str, repository: Path) -> Iterator[Job]:
    """The job with a lab, as GitHub starts it."""
    made = Job(client, runner_image, repository, github_options())
    yield made
    made.remove()


@pytest.mark.parametrize("file", [GITHUB, GITLAB])
def test_the_gate_needs_no_capability(client: ContainerEngine, runner_image: str, repository: Path, file: str) -> None:
    made = Job(client, runner_image, repository, [])
    try:
        made.check("chown -R 1000:1000 .")
        for command in commands_of(file, "gate"):
            made.check(command, user="1000:1000")
        assert "<testcase" in made.check("cat results/*/junit.xml")
    finally:
        made.remove()


def test_a_lab_comes_up_with_the_capabilities_of_the_guide(job: Job) -> None:
    assert "Labs can run on this machine" in job.check("testbed doctor")
    assert job.check("testbed doctor --install-line") == ""
    job.check("testbed deploy -t topologies/demo.yml")
    assert "fail" not in job.check("testbed check")
    assert '"running"' in job.check("testbed list -f json")
    assert "Established" in job.check("testbed inspect bgp")
    assert "rail1" in job.check("testbed exec p1-s1-h1 -- ip -br link")
    job.check("testbed destroy --all --yes")
    assert job.check("ls /run/netns /var/lib/testbed/labs").split() == ["/run/netns:", "/var/lib/testbed/labs:"]


@pytest.mark.parametrize("file", [GITHUB, GITLAB])
@pytest.mark.thorough
def test_the_job_with_a_lab(job: Job, file: str) -> None:
    tests, scenario = commands_of(file, "lab")
    said = job.check(tests)
    assert "3 passed" in said
    # Whether this machine kept up, and with it the verdict, is not the subject.
    job.check(f"{scenario} --repeat 1 --set workload.duration=2s", codes=(0, 1, 2))
    assert "<testcase" in job.check("cat results/rail-permutation-*/junit.xml")
    assert "<testcase" in job.check("cat results/pytest.xml")


def test_a_port_with_queues_and_pauses_works_in_it(job: Job) -> None:
    """eBPF programs on ports, and the agent that sends pauses in real time."""
    job.check("testbed deploy -t topologies/uec-spray.yml --set fabric.hosts=2 --set fabric.segments=2")
    assert "fail" not in job.check("testbed check")
    assert "p1-s1-rail1" in job.check("testbed stats")
    job.check("testbed destroy --all --yes")


@pytest.mark.parametrize(
    "lacking", [*(pytest.param(name, marks=pytest.mark.thorough) for name in ("NET_ADMIN", "SYS_ADMIN")), "SYS_PTRACE"]
)
def test_without_one_of_them_it_is_named(
    client: ContainerEngine, runner_image: str, repository: Path, lacking: str
) -> None:
    options = github_options()
    place = options.index(lacking)
    made = Job(client, runner_image, repository, options[: place - 1] + options[place + 1 :])
    try:
        code, said = made.run("testbed deploy -t topologies/demo.yml")
        assert code not in (0, 1), said
        assert f"stripped of CAP_{lacking}" in said
        assert f"--cap-add {lacking}" in said
        code, said = made.run("python -m pytest -q --testbed-require tests")
        assert code == 1
        assert f"CAP_{lacking}" in said
    finally:
        made.remove()
