"""Exit codes of verbs on a lab that is really there: a program's own, those of shells, and verdicts."""

from typing import Any

import pytest

pytestmark = [pytest.mark.netns, pytest.mark.frr]

HOST, SWITCH = "p1-s1-h1", "p1-s1-rail1"


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Any:
    """The sandbox with a lab in it."""
    shared_sandbox.deploy(shared_sandbox.tiny())
    return shared_sandbox


@pytest.mark.parametrize("node", [HOST, SWITCH])
@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("true",), 0, ""),
        (("sh", "-c", "exit 7"), 7, ""),
        (("sh", "-c", "exit 2"), 2, ""),
        (("no-such-program",), 127, "no-such-program: command not found"),
        (("/etc/hostname",), 126, "/etc/hostname: Permission denied"),
        (("sh", "-c", "kill -9 $$"), 137, ""),
        (("sh", "-c", "kill -15 $$"), 143, ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_exec_ends_with_the_code_of_the_program(
    lab: Any, node: str, command: tuple[str, ...], code: int, words: str
) -> None:
    done = lab.cli("exec", "-n", lab.name(), node, "--", *command)
    assert (done.returncode, words in done.stderr) == (code, True), done


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "nobody", "--", "true"),
        ("shell", "nobody"),
        ("capture", "nobody:rail1"),
        ("capture", f"{HOST}:rail9"),
        ("capture", f"{HOST}:rail1", "-c", "1", "no filter"),
        ("link", "down", f"{HOST}:rail9"),
        ("link", "set", f"{HOST}:rail1", "--loss", "1%"),
        ("inspect", "nothing"),
        ("stats", "--class", "rdma"),
        ("power", "off", "nobody"),
    ],
    ids=" ".join,
)
def test_what_a_lab_does_not_have_could_not_begin(lab: Any, words: tuple[str, ...]) -> None:
    verb = 1 if words[0] not in ("link", "power") else 2
    done = lab.cli(*words[:verb], "-n", lab.name(), *words[verb:])
    assert done.returncode == 3, done
    assert done.stderr and "Traceback" not in done.stderr


def test_check_tells_a_lab_that_is_not_whole_from_one_that_is(lab: Any) -> None:
    name = lab.name()
    assert lab.cli("check", "-n", name).returncode == 0
    assert lab.cli("link", "down", "-n", name, f"{HOST}:rail1").returncode == 0
    assert lab.cli("check", "-n", name).returncode == 1
    assert lab.cli("link", "up", "-n", name, f"{HOST}:rail1").returncode == 0
    assert lab.cli("check", "-n", name).returncode == 0


def test_a_deploy_that_does_not_converge_fails_and_another_lab_of_that_name_cannot_begin(sandbox: Any) -> None:
    path = sandbox.work / "lab.yml"
    path.write_text(
        f"name: {sandbox.name()}\nscale: {{time: 10000}}\n"
        "fabric: {design: rail-optimized, hosts: 1, gpus: 1, spines: 1}\n"
    )
    hurried = sandbox.cli("deploy", "-q", "-t", str(path), "--timeout", "0.001")
    sandbox.note_daemons()
    assert (hurried.returncode, "has not converged" in hurried.stderr) == (1, True), hurried
    other = sandbox.cli("deploy", "-q", "-t", str(path), "--set", "fabric.hosts=2")
    assert (other.returncode, "a different lab" in other.stderr) == (3, True), other
    assert sandbox.cli("destroy", "-q", "-n", sandbox.name()).returncode == 0
    assert sandbox.cli("destroy", "-q", "-n", sandbox.name()).returncode == 3
