"""Which tests run beside each other: `tests/support/machines/side_by_side.py`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from doc_blocks import Block, name_of, pages_of
from doc_runner import PageRun, is_scenario
from side_by_side import (
    BEGUN_FIRST,
    DOCKER,
    DOCS,
    NEVER_BESIDE_EACH_OTHER,
    PAGES_OF_THE_DEMO,
    VM,
    begun_first,
    scope_of,
)

from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.core.schema.other_tools import find_other_tool
from testbed.run.schema.file import load_scenario_text

ROOT = Path(__file__).parents[3]
SUITE = """
import os
from pathlib import Path
import pytest
{mark}
def test_it(number):
    with Path("{log}").open("a") as file:
        file.write(f"{name} {{os.getpid()}} {{number}}\\n")
"""


def test_the_files_that_are_named_are_there() -> None:
    for file in (*BEGUN_FIRST, *NEVER_BESIDE_EACH_OTHER):
        assert (ROOT / file).exists(), file


def test_a_file_shares_a_process_and_what_kills_labs_does_so_altogether() -> None:
    assert scope_of("tests/a.py::test_x[p::q]") == scope_of("tests/a.py::TestOther::test_y") == "tests/a.py"
    assert scope_of("tests/a.py::test_x") != scope_of("tests/b.py::test_x")
    assert len({scope_of(f"{file}::test_x") for file in NEVER_BESIDE_EACH_OTHER}) == 1


def test_the_lab_vm_is_booted_once_and_other_machines_run_beside_it() -> None:
    files = {path.name: scope_of(f"{VM}/{path.name}::test_x") for path in (ROOT / VM).glob("test_*.py")}
    beside = {name for name, scope in files.items() if scope != "the lab VM"}
    assert beside == {"test_image.py", "test_debian_13.py", "test_vagrant_up.py", "test_vagrantfile.py"}


def labs_of(page: Path, directory: Path) -> set[str]:
    """The names of the labs that the commands of a page deploy."""
    run = PageRun(page, directory, {})
    found: set[str] = set()
    for block in run.blocks:
        if block.language == "yaml" and not block.not_run:
            run.save(block, run.merged(block))
        elif block.tier == "netns" and not block.not_run:
            for file in re.findall(r"[\w./-]+\.yml\b", commands_of(block)):
                path = directory / file
                if path.exists():
                    found |= labs_in(path)
    return found


def labs_in(path: Path) -> set[str]:
    """The names of the labs of a file of a page: a scenario, a topology, or one of another tool, which is imported by
    its own name."""
    text = path.read_text()
    if is_scenario(text):
        read = load_scenario_text(text, file=str(path))
        return {read.load_lab(point).name for point in read.scenario.variants or (read.scenario,)}
    if find_other_tool(data := yaml.safe_load(text)) is not None:
        return {str(data["name"])}
    return {load_topology_text(text, file=str(path)).name}


def commands_of(block: Block) -> str:
    """What a block runs, without what touches nothing."""
    if block.language != "sh":
        return block.text
    lines = [block.rule("instead", line) or line for line in block.commands() if not block.rule("skip", line)]
    return "\n".join(line for line in lines if "--dry-run" not in line)


def test_pages_beside_each_other_have_no_lab_in_common(tmp_path: Path) -> None:
    labs: dict[str, set[str]] = {}
    pages = {name_of(page): page for page in pages_of("netns")}
    assert set(PAGES_OF_THE_DEMO) < set(pages)
    for number, (name, page) in enumerate(pages.items()):
        (directory := tmp_path / str(number)).mkdir()
        labs.setdefault(scope_of(f"{DOCS}::test_page[{name}]"), set()).update(labs_of(page, directory))
    one, other = labs.values()
    assert one and other and not one & other


def test_what_takes_longest_is_begun_first_and_the_rest_keeps_its_order() -> None:
    late, early = DOCS, f"{DOCKER}/test_any.py"
    files = ["tests/b.py", late, "tests/a.py", "tests/b.py", early, early]
    assert [files[place] for place in begun_first(files)] == [
        early,
        early,
        late,
        "tests/b.py",
        "tests/a.py",
        "tests/b.py",
    ]
    assert begun_first(files) == [4, 5, 1, 0, 2, 3]


@pytest.mark.process
def test_two_processes_share_whole_files_in_the_order_of_their_tests(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "conftest.py").write_text(
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    from side_by_side import SideBySide\n"
        "    config.option.loadscopereorder = False\n"
        "    return SideBySide(config, log)\n"
    )
    for name, tests in (("a", 1), ("b", 40), ("c", 3), ("d", 4)):
        mark = f'@pytest.mark.parametrize("number", range({tests}))'
        (tmp_path / f"test_{name}.py").write_text(SUITE.format(mark=mark, log=log, name=name))
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup"]
    argv += [
        "-p",
        "xdist",
        "-o",
        f"pythonpath={ROOT / 'tests/support/machines'}",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[str, list[tuple[str, str]]] = {}
    for line in log.read_text().splitlines():
        name, process, number = line.split()
        seen.setdefault(name, []).append((process, number))
    for name, tests in (("a", 1), ("b", 40), ("c", 3), ("d", 4)):
        assert [number for _, number in seen[name]] == [str(number) for number in range(tests)]
        assert len({process for process, _ in seen[name]}) == 1, f"{name} is run by one"
    assert len({process for runs in seen.values() for process, _ in runs}) == 2


def test_all_of_the_console_share_its_lab() -> None:
    files = ("tests/browser/console/test_map.py", "tests/browser/console/views/test_views.py")
    assert len({scope_of(f"{file}::test_x") for file in files}) == 1


def test_all_of_containers_share_an_engine() -> None:
    assert {scope_of(f"{path.relative_to(ROOT)}::test_x") for path in (ROOT / DOCKER).glob("test_*.py")} == {DOCKER}
