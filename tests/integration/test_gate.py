"""`./lab test` as a program: outcomes, what is run again, what an interrupted run goes on with, and tests of all marks.

The tests that it runs here are made for that: a checkout in small, whose files say by a flag how often they were run.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import checks
import pytest
from _pytest.mark.expression import Expression
from file_marks import may_have
from gate import Asked, _interrupt, main
from long_files import LONG_FILES
from progress import Progress, digest_of
from summary import Row
from tier_run import TierRunner, exit_code
from tiers import BY_NAME, FIRST, GATE, INTERPRETED, PARTS, PURE, VM_AND_INTERPRETED, Tier
from waiting import until

pytestmark = pytest.mark.process

GATE_DIRECTORY = Path(__file__).parents[1] / "support/gate"
CONFTEST = f"""
import sys
sys.path.insert(0, {str(GATE_DIRECTORY)!r})
from outcomes import leave_out_passed, note_outcomes

def pytest_configure(config):
    note_outcomes(config)

def pytest_collection_modifyitems(config, items):
    leave_out_passed(config, items)
"""
WAITS = "while not threading.Event().wait(0.05): pass\n"
"""A test that waits for an interrupt. In one long wait it would miss a signal that comes once Python has looked for
signals and before the kernel waits: a machine that others use may stop a process just there."""
COUNTED = """
from pathlib import Path

def runs(name):
    path = Path(__file__).parent / name
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())
"""


@pytest.mark.parametrize(("chosen", "code"), [("test_a_port_is_up", 0), ("no_such_test", 5)])
def test_what_pytest_only_says_is_no_tier(chosen: str, code: int) -> None:
    words = ["--collect-only", "-q", "tests/unit/base/linux/test_counters.py", "-k", chosen]
    done = subprocess.run(
        [sys.executable, str(GATE_DIRECTORY / "gate.py"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == code and "collected" in done.stdout and "outcome" not in done.stdout, done


def test_sources_without_git_are_tested_and_nothing_is_kept_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert digest_of(tmp_path) == ""
    progress = Progress(tmp_path / "kept", tmp_path, keep=True)
    progress.outcomes("pure").write_text("")
    assert not Progress(tmp_path / "kept", tmp_path, keep=True).outcomes("pure").exists()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Row]]:
    """Run a tier whose one file has these tests, in a small checkout; what was run before counts if `keep`."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a start of pytest is most of a test here
    deaf = signal.signal(signal.SIGINT, signal.default_int_handler)  # as `gate.py` does for what it starts
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    (tmp_path / ".gitignore").write_text("build/\n__pycache__/\n*.count\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)

    def run(tests: str, *, keep: bool = False, runner: type[TierRunner] = TierRunner, **settings: object) -> Row:
        (tmp_path / "test_it.py").write_text(COUNTED + tests)
        commit = ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x"]
        for words in (["add", "-A"], commit):
            if not keep:
                subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
        tier = Tier(**{"name": "it", "summary": "", "marks": "", "minutes": 1, "places": ("test_it.py",), **settings})
        return runner(tmp_path, Progress(tmp_path / "build/tests", tmp_path, keep=keep), hangs_after=1e9).run(tier)

    yield run
    signal.signal(signal.SIGINT, deaf)


def test_outcomes_are_counted(run: Callable[..., Row]) -> None:
    row = run(
        "import pytest\n"
        "def test_a(): pass\n"
        "def test_b(): assert False\n"
        "def test_c(): pytest.skip('why')\n"
        "@pytest.fixture\n"
        "def broken():\n    yield\n    assert False\n"
        "def test_d(broken): pass\n"
    )
    assert (row.passed, row.failed, row.skipped) == (1, 2, 1)
    assert row.outcome == "FAILED"


def test_what_fails_once_is_run_again_and_named(run: Callable[..., Row], capfd: pytest.CaptureFixture[str]) -> None:
    row = run("def test_a(): assert runs('a.count') > 1\ndef test_b(): assert runs('b.count') == 1\n")
    assert (row.passed, row.failed, row.repeated) == (2, 0, ("test_it.py::test_a",))
    assert row.outcome == "ok"
    assert "1 that failed once more" in capfd.readouterr().err


def test_what_fails_twice_fails(run: Callable[..., Row]) -> None:
    row = run("def test_a(): assert runs('a.count') > 2\n")
    assert (row.passed, row.failed, row.repeated) == (0, 1, ())


def test_what_needs_nothing_of_the_machine_has_one_chance(run: Callable[..., Row]) -> None:
    row = run("def test_a(): assert runs('a.count') > 1\n", repeated=False)
    assert (row.passed, row.failed, row.repeated) == (0, 1, ())


def test_many_failures_are_not_run_again(run: Callable[..., Row]) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(11))\n"
    row = run(many + "def test_a(n): assert runs(f'{n}.count') > 1\n")
    assert (row.passed, row.failed) == (0, 11)


@pytest.mark.parametrize("tests", ["import nowhere_to_be_found\n", "import os\ndef test_a(): os._exit(7)\n"])
def test_a_file_that_cannot_be_read_and_a_process_that_ends_are_failures(run: Callable[..., Row], tests: str) -> None:
    assert run(tests).failed == 1


def test_a_tier_without_tests_proves_nothing(run: Callable[..., Row]) -> None:
    row = run("")
    assert (row.passed, row.failed, row.outcome) == (0, 1, "FAILED")


def test_a_tier_that_takes_too_long_is_a_warning(run: Callable[..., Row]) -> None:
    row = run("def test_a(): pass\n", minutes=1e-3)
    assert (row.outcome, row.failed) == ("ok, over its budget", 0)


def test_a_tier_that_hangs_is_interrupted_and_cleans_up(run: Callable[..., Row], tmp_path: Path) -> None:
    class Impatient(TierRunner):
        def _wait(self, process: subprocess.Popen[bytes], limit_s: float) -> int:
            while not (tmp_path / "here.count").exists() and process.poll() is None:
                time.sleep(0.01)
            return super()._wait(process, 0.0)

    row = run(
        "import pytest, threading\n"
        "@pytest.fixture\n"
        "def thing():\n    yield\n    runs('undone.count')\n"
        "def test_a(thing):\n    runs('here.count')\n    " + WAITS,
        runner=Impatient,
        repeated=False,
    )
    assert row.failed
    assert (tmp_path / "undone.count").exists()


def test_a_run_goes_on_where_it_was_interrupted(run: Callable[..., Row], tmp_path: Path) -> None:
    tests = "def test_a(): runs('a.count')\ndef test_b():\n    if runs('b.count') == 1: raise KeyboardInterrupt\n"
    broken_off = run(tests)
    assert (broken_off.passed, broken_off.failed) == (1, 1)
    rest = run(tests, keep=True)
    assert (rest.passed, rest.failed, rest.earlier) == (1, 0, 1)
    assert (tmp_path / "a.count").read_text() == "x"
    (tmp_path / "test_other.py").write_text("x = 1\n")
    assert run(tests, keep=True).earlier == 0, "other sources: nothing of what passed before counts"


@pytest.mark.parametrize(
    ("send", "number", "code"),
    [(os.killpg, signal.SIGINT, 130), (os.killpg, signal.SIGTERM, 143), (os.kill, signal.SIGTERM, 143)],
    ids=["ctrl-c", "timeout", "kill"],
)
def test_an_interrupt_ends_it_with_a_table_and_cleans_up(
    tmp_path: Path, send: Callable[[int, int], None], number: int, code: int
) -> None:
    """A terminal and `timeout` send their signals to the whole group, `kill` to the gate alone."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    waits = (
        "import pytest, threading\n"
        "@pytest.fixture\n"
        "def thing():\n    yield\n    runs('undone.count')\n"
        "def test_a(thing):\n    print('here', flush=True)\n    " + WAITS
    )
    (tmp_path / "test_it.py").write_text(COUNTED + waits)
    command = [sys.executable, str(GATE_DIRECTORY / "gate.py"), "-s", str(tmp_path / "test_it.py")]
    said = ""
    pipe, streams = subprocess.PIPE, subprocess.STDOUT
    environment = {**os.environ, "TESTBED_PURE": "1"}  # nothing is compiled for a test that does nothing
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=streams, text=True, process_group=0) as gate:
        for line in gate.stdout or ():
            said += line
            if line.endswith("here\n"):
                send(gate.pid, number)
    assert gate.returncode == code, said
    assert "0 passed" in said
    assert (tmp_path / "undone.count").exists()


def is_over(stat: Path) -> bool:
    """Tell from its file in /proc whether a process is gone, or only waits for its parent."""
    try:
        return stat.read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_what_is_not_compiled_is_told_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refusal = ["sh", "-c", "echo no compiler >&2; exit 1"]
    monkeypatch.setattr(checks, "commands", lambda root: {checks.COMPILING: refusal, "ruff": refusal})
    assert [(row.name, row.failed) for row in checks.run_checks(tmp_path)] == [("compiling", 0), ("ruff", 1)]
    assert capfd.readouterr().err.count("no compiler\n") == 2
    assert [row.name for row in checks.run_checks(tmp_path, only=(checks.COMPILING,))] == ["compiling"]


def test_an_interrupt_ends_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check may have started others: all of its group end."""
    waits = [
        "sh",
        "-c",
        f"sleep 600 & echo $! > {tmp_path}/started.part; mv {tmp_path}/started.part {tmp_path}/started; wait",
    ]
    monkeypatch.setattr(checks, "commands", lambda root: {"slow": waits})
    deaf = signal.signal(signal.SIGTERM, _interrupt)

    def end() -> None:
        while not (tmp_path / "started").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        threading.Thread(target=end).start()
        with pytest.raises(KeyboardInterrupt) as ended:
            checks.run_checks(tmp_path)
    finally:
        signal.signal(signal.SIGTERM, deaf)
    assert exit_code(ended.value) == 143
    sleeping = Path("/proc", (tmp_path / "started").read_text().strip(), "stat")
    until(lambda: is_over(sleeping), "what a check has started ends")


@pytest.mark.parametrize(
    ("words", "tiers"),
    [
        ([], FIRST),
        (["--all"], GATE),
        (["--everything"], (*GATE, *PARTS)),
        (["--part", "vm", "--part", "soak"], (BY_NAME["vm"], BY_NAME["soak"])),
    ],
)
def test_tiers_that_are_asked_for(words: list[str], tiers: tuple[Tier, ...]) -> None:
    asked = Asked(words)
    assert (tuple(asked.tiers), asked.pytest) == (tiers, [])
    assert asked.checked is (words[:1] != ["--part"])


def test_other_words_go_to_pytest_and_leave_the_checks_out() -> None:
    asked = Asked(["tests/unit", "-k", "a b"])
    assert (asked.pytest, asked.checked) == (["tests/unit", "-k", "a b"], False)


def test_a_tier_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--part", "vmm"])
    assert ended.value.code == 2
    assert "no tier 'vmm': pure, process" in capsys.readouterr().err
    assert main(["--parts"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in BY_NAME)


MARKS = (
    "process",
    "netns",
    "gate",
    "timed",
    "image",
    "vm",
    "labvm",
    "docker",
    "bench",
    "soak",
    "scenarios",
    "thorough",
)


def test_every_test_is_in_one_tier_whatever_its_marks() -> None:
    """But for those that are run compiled and interpreted, and long tests of a part that has no short ones."""
    once = [BY_NAME["vm"] if tier is VM_AND_INTERPRETED else tier for tier in (*GATE, *PARTS)]
    for count in range(3):
        for marks in itertools.combinations(MARKS, count):
            having = [tier.name for tier in once if _has(tier, set(marks))]
            apart = {"image", "vm", "labvm", "docker", "bench", "soak", "scenarios"} & set(marks)
            assert len(having) == 1 or (len(apart) == 2 and having), (marks, having)


def test_long_files_are_there_and_in_the_gate_alone() -> None:
    assert [file for file in LONG_FILES if not (Path(__file__).parents[2] / file).is_file()] == []
    for mark in ("process", "netns"):
        for tiers, has in ((FIRST, []), (GATE, [True])):
            assert [True for tier in tiers if tier is not PURE and _has(tier, {mark, "gate"})] == has


def test_what_takes_long_is_never_in_the_gate() -> None:
    for tier in (*GATE, *FIRST, BY_NAME["docker"]):
        for marks in itertools.combinations(MARKS, 2):
            assert not (_has(tier, set(marks)) and {"soak", "thorough", "bench"} & set(marks)), (tier.name, marks)


def test_labs_and_docker_are_all_of_both_and_the_image_that_the_vm_boots_next() -> None:
    joined, parts = BY_NAME["labs+docker"], (BY_NAME["labs"], BY_NAME["docker"])
    assert _has(joined, {"image"})
    others = [mark for mark in MARKS if mark != "image"]
    for marks in itertools.chain(*(itertools.combinations(others, count) for count in range(4))):
        assert _has(joined, set(marks)) == any(_has(part, set(marks)) for part in parts), marks
    assert all(any(place.startswith(whole) for whole in joined.places) for part in parts for place in part.places)


def test_the_vm_and_what_is_interpreted_are_all_of_both_and_the_vm_is_begun_first() -> None:
    joined, parts = VM_AND_INTERPRETED, (BY_NAME["vm"], INTERPRETED)
    for marks in itertools.chain(*(itertools.combinations(MARKS, count) for count in range(4))):
        assert _has(joined, set(marks)) == any(_has(part, set(marks)) for part in parts), marks
    assert joined.places == (*parts[0].places, *parts[1].places)
    assert (joined.environment, joined.options) == (INTERPRETED.environment, INTERPRETED.options)


def test_every_tier_looks_where_its_tests_are() -> None:
    """A file that has a mark by which a tier is chosen lies in one of its directories."""
    root = Path(__file__).parents[2]
    files = {path: path.read_text() for path in (root / "tests").rglob("test_*.py") if path != Path(__file__)}
    for mark in ("netns", "frr", "image", "vm", "labvm", "docker", "bench", "soak", "scenarios"):
        tiers = [tier for tier in (*GATE, *PARTS) if _has(tier, {mark}) or _has(tier, {mark, "thorough"})]
        places = {place for tier in tiers for place in tier.places}
        for path, text in files.items():
            if f"mark.{mark}\n" in text or f"mark.{mark}," in text or f"mark.{mark}]" in text:
                lies_in = path.relative_to(root).as_posix()
                apart = lies_in.startswith(("tests/bench", "tests/integration/docker", "tests/integration/vm"))
                assert any(lies_in.startswith(place) for place in places) or apart, (mark, lies_in)


def test_files_that_a_tier_does_not_read_have_none_of_its_tests() -> None:
    """Of each tier that has few of the files; marks of tests are written in their files."""
    files = {path: path.read_text() for path in (Path(__file__).parents[1]).rglob("test_*.py")}
    for tier in (*GATE, *PARTS):
        read = {path.name for path, text in files.items() if may_have(tier.marks, text)}
        assert read and (tier in (PURE, VM_AND_INTERPRETED) or len(read) < len(files) / 2), tier.name
    assert may_have("process and not thorough", "pytestmark = pytest.mark.process\n@pytest.mark.thorough\n")
    assert not may_have("process and not thorough", "@pytest.mark.thorough\ndef test_a(): pass\n")
    assert may_have("netns and not gate", "pytest.mark.netns") and may_have("netns and gate", "pytest.mark.netns")
    assert may_have("not (process or netns)", "x = pytest.mark.process") and not may_have("vm", "pytest.mark.netns")


def test_only_files_that_may_have_its_tests_are_read(tmp_path: Path) -> None:
    """The conftest of all tests, as pytest runs it; a file that is named is read whatever its marks are."""
    for name, text in (("a", "import pytest\n@pytest.mark.vm\ndef test_it(): pass\n"), ("b", "import nowhere\n")):
        (tmp_path / f"test_{name}.py").write_text(text)
    conftest = Path(__file__).parents[1] / "conftest.py"

    def collected(*words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "conftest", "--rootdir", str(tmp_path)]
        paths = f"{conftest.parent}:{':'.join(str(path) for path in (conftest.parent / 'support').iterdir())}"
        done = subprocess.run(
            [*argv, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    assert collected("-m", "vm")[0] == 0
    code, said = collected("-m", "vm", "test_b.py")
    assert code == 2 and "nowhere" in said


def _has(tier: Tier, marks: set[str]) -> bool:
    """Whether a test with these marks is one of the tier's."""
    return Expression.compile(tier.marks).evaluate(lambda name, **_: name in marks)
