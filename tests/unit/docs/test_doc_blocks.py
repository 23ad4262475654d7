"""Every block of the docs has an executor, those that need no root are executed here, and the executor is strict."""

import os
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, DocError, name_of, pages, pages_of, read_blocks
from doc_runner import PageRun, is_run, merge_yaml

pytestmark = pytest.mark.process


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_block_has_an_executor(page: Path) -> None:
    read_blocks(page)


LONG = (
    *("ci-jobs.md", "ci-with-pytest.md", "inference-requests.md", "networks.md", "pools.md", "record.md", "storage.md"),
    *("questions-on-dcqcn.md", "questions-on-load-balancing.md"),
)
"""Pages whose simulations and runs of pytest take long, and whose verbs other pages have, too."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.thorough] if page.name in LONG else [])
        for page in pages_of("unit")
    ],
)
def test_blocks_that_need_no_root(page: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TESTBED_STATE_DIR": str(tmp_path / "state"), "TESTBED_RUN_DIR": str(tmp_path / "run")}
    work = tmp_path / "work"
    work.mkdir()
    PageRun(page, work, environment).run("unit")


def blocks(tmp_path: Path, text: str) -> list[Block]:
    page = tmp_path / "page.md"
    page.write_text(text)
    return read_blocks(page)


def test_a_block_takes_its_page_and_its_comment(tmp_path: Path) -> None:
    one, two, three = blocks(
        tmp_path,
        "# A page\n\n<!-- page: netns -->\n\n```sh\n./lab list  # of all\n```\n\n"
        "<!-- run: unit\nexit: ./lab check => 1\n-->\n\n```sh\n./lab check \\\n   --rtt\n```\n\n"
        "```yaml\nname: a\n```\n\n```text\noutput\n```\n",
    )
    assert (one.language, one.tier, one.commands()) == ("sh", "netns", ["./lab list"])
    assert (two.tier, two.commands(), two.rule("exit", "./lab check --rtt")) == ("unit", ["./lab check --rtt"], "1")
    assert (three.language, three.tier, three.line) == ("yaml", "unit", 18)


def test_blocks_in_lists_and_in_directives_are_blocks(tmp_path: Path) -> None:
    text = "* first\n\n  ```sh\n  ./lab list\n  ```\n\n````{note}\nA text.\n\n```sh\n./lab doctor\n```\n````\n"
    assert [block.commands() for block in blocks(tmp_path, text)] == [["./lab list"], ["./lab doctor"]]


def test_a_directive_without_blocks_is_none(tmp_path: Path) -> None:
    text = "```{note}\nA text.\n```\n\n```sh\n./lab list\n```\n\n```{toctree}\na\n```\n"
    assert [block.text for block in blocks(tmp_path, text)] == ["./lab list\n"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```bash\nls\n```\n", "page.md:1: a block of the language 'bash'"),
        ("text\n\n```\nls\n```\n", "page.md:3: a block of the language ''"),
        ("<!-- run: moon -->\n```sh\nls\n```\n", "there is no tier 'moon'"),
        ("<!-- not run: later -->\n```sh\nls\n```\n", "wants a reason"),
        ("<!-- run: netns -->\n\nText.\n\n```sh\nls\n```\n", "stands above no block"),
        ("<!-- exit: ./lab check => 1 -->\n```sh\n./lab list\n```\n", "no line begins with './lab check'"),
        ("<!-- exit: ./lab check -->\n```sh\n./lab check\n```\n", "is not 'exit: PREFIX => VALUE'"),
        ("<!-- run: unit -->\n```text\nls\n```\n", "is not executed"),
        ("<!-- into: demo.yml -->\n```sh\nls\n```\n", "are for blocks in yaml"),
        ("<!-- with: ls => -l -->\n```yaml\na: 1\n```\n", "is for blocks in sh"),
    ],
)
def test_mistakes(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DocError, match=r"page\.md:") as caught:
        blocks(tmp_path, text)
    assert said in str(caught.value)


@pytest.fixture
def run_page(tmp_path: Path) -> object:
    """Runs the unit blocks of a page that is given as text, in `tmp_path/work`."""

    def run(text: str) -> Path:
        page = tmp_path / "page.md"
        page.write_text(text)
        work = tmp_path / "work"
        work.mkdir()
        PageRun(page, work, os.environ, timeout_s=30).run("unit")
        return work

    return run


def test_commands_of_a_page_share_a_directory(run_page: object) -> None:
    work = run_page("```sh\necho one >file\n```\n\n<!-- says: cat => one -->\n```sh\ncat file\n```\n")  # type: ignore[operator]
    assert (work / "file").read_text() == "one\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\nfalse | cat\n```\n", "exit code 1"),
        ("<!-- exit: true => 1 -->\n```sh\ntrue\n```\n", "exit code 0"),
        ("<!-- says: echo => two -->\n```sh\necho one\n```\n", "no 'two' in"),
        ("<!-- says: echo => one\nsays: echo => four -->\n```sh\necho one\n```\n", "no 'four' in"),
        ("<!-- until: echo => two -->\n```sh\necho one\n```\n", "ended without 'two'"),
        ("```python\nraise SystemExit(3)\n```\n", "exit code 3"),
        ("<!-- says: two -->\n```python\nprint('one')\n```\n", "no 'two' in"),
        ("<!-- says: one\nsays: three -->\n```python\nprint('one')\n```\n", "no 'three' in"),
        ("```python\ndef test_it():\n    assert 1 == 2\n```\n", "1 failed"),
        ("```yaml\nname: a\nfabrik: {}\n```\n", "unknown-key"),
        ("<!-- bad: unknown-key -->\n```yaml\nname: a\nfabric: {design: rail-optimized}\n```\n", "nothing is wrong"),
        ("<!-- bad: bad-name -->\n```yaml\nname: a\nfabrik: {}\n```\n", "unknown-key"),
    ],
)
def test_what_goes_wrong_is_told(text: str, said: str, run_page: object) -> None:
    with pytest.raises(AssertionError) as caught:
        run_page(text)  # type: ignore[operator]
    assert said in str(caught.value)
    assert "page.md:" in str(caught.value)


def test_rules_of_lines(run_page: object) -> None:
    work = run_page(  # type: ignore[operator]
        "<!-- run: unit\nwith: echo => more >with\ninstead: rm => echo kept >instead\nafter: rm => touch after\n"
        "skip: reboot => it would\nuntil: sh => ready\n-->\n```sh\necho\nrm -rf x  # a comment\nreboot\n"
        "sh -c 'trap \"touch interrupted; exit 0\" INT; echo ready; while :; do sleep 0.05; done'\n```\n"
    )
    assert (work / "with").read_text() == "more\n"
    assert (work / "instead").read_text() == "kept\n"
    assert (work / "after").exists() and (work / "interrupted").exists()


def test_a_fragment_is_merged_and_saved(run_page: object) -> None:
    work = run_page(  # type: ignore[operator]
        "<!-- into: topologies/demo.yml\nfile: small.yml\n-->\n```yaml\nname: small\nfabric:\n  hosts: 2\n```\n\n"
        "<!-- says: ./lab validate => small -->\n```sh\n./lab validate -t small.yml\n```\n"
    )
    assert "hosts: 2" in (work / "small.yml").read_text()


def test_merging_keeps_scalars_as_they_are_written() -> None:
    assert merge_yaml("a: {b: off, c: [1]}\nd: '1'\n", "a: {c: [2, 3], e: 0x1}\n") == (
        "a: {b: off, c: [2, 3], e: 0x1}\nd: '1'\n"
    )


def test_what_measures() -> None:
    assert is_run("./lab run scenarios/a.yml")
    assert is_run("./lab --on vm --clock virtual run scenarios/a.yml")
    assert not is_run("./lab run scenarios/a.yml --dry-run")
    assert not is_run("./lab results list")


def test_every_page_is_read() -> None:
    assert pages()[0] == ROOT / "README.md"
    assert {path.parent.name for path in pages()} >= {"docs", "start"}
