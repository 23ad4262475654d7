"""Executes the blocks of a page (`doc_blocks`) in a directory: commands, scripts, and files that are loaded."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml
from doc_blocks import ROOT, Block, DocError, read_blocks

from testbed.api.pool.file import resolve_pool
from testbed.base.errors import SpecError
from testbed.base.yaml.reader import load_document
from testbed.lab.core.fabric import DESIGNS
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.core.schema.prices import resolve_prices
from testbed.run.schema.file import load_scenario_text

TIMEOUT_S = 240.0
MERGED = ("topologies", "scenarios", "images")


class PageRun:
    """One run of a page's blocks for one tier, in `directory`, which is filled with what the commands name."""

    def __init__(
        self, page: Path, directory: Path, environment: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.blocks = read_blocks(page)
        self.directory = directory
        self.timeout_s = timeout_s
        programs = Path(sys.executable).parent
        self.environment = {
            **environment,
            "PATH": f"{programs}:{environment.get('PATH', os.defpath)}",
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
        }
        for name in MERGED:
            shutil.copytree(ROOT / name, directory / name)
        (directory / "lab").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -u -m testbed "$@"\n')
        (directory / "lab").chmod(0o755)

    def run(self, tier: str) -> None:
        """Execute all blocks of a tier, and save the files that any block says it is."""
        for block in self.blocks:
            if block.not_run:
                continue
            if block.language == "yaml":
                text = self.merged(block)
                if tier == "unit":
                    self.load(block, text)
                self.save(block, text)
            elif block.file:
                self.save(block, block.text)
            elif block.tier == tier:
                match block.language:
                    case "sh":
                        self.shell(block)
                    case _:
                        self.python(block)

    def lab(self, *arguments: str) -> None:
        """Run the command line to clean up; what it says is of no interest."""
        subprocess.run(
            [str(self.directory / "lab"), *arguments],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=self.timeout_s,
            check=False,
        )

    def destroy(self) -> None:
        """Destroy the labs that the page left up."""
        self.lab("destroy", "--all", "--yes")

    def save(self, block: Block, text: str) -> None:
        if block.file:
            path = self.directory / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def merged(self, block: Block) -> str:
        """The text of a YAML block, over its base if it is a fragment."""
        if not block.into:
            return block.text
        base = self.directory / block.into
        if base.is_file():
            below = base.read_text()
        elif block.into in DESIGNS:
            below = f"name: page\nfabric: {{design: {block.into}}}\n"
        else:
            raise DocError(f"{block.place}: into: {block.into} is neither a file nor a design")
        return merge_yaml(below, block.text)

    def load(self, block: Block, text: str) -> None:
        """Load a topology, a price list, a pool, or a scenario with every point of it, as the command line would."""
        name = block.file or ("scenarios/page.yml" if is_scenario(text) else "page.yml")
        file = str(self.directory / name)
        try:
            if is_price_list(text):
                resolve_prices(load_document(text, file))
            elif is_pool(text):
                resolve_pool(load_document(text, file))
            elif is_scenario(text):
                read = load_scenario_text(text, file=file)
                for point in read.scenario.variants or (read.scenario,):
                    read.load_lab(point)
            else:
                load_topology_text(text, file=file)
        except SpecError as error:
            codes = {problem.code for problem in error.problems}
            assert block.bad in codes, f"{block.place}: refused:\n{error}"
        else:
            assert not block.bad, f"{block.place}: nothing is wrong with it, though the page says {block.bad}"

    def shell(self, block: Block) -> None:
        for command in block.commands():
            if block.rule("skip", command):
                continue
            self._command(block, command)
            if after := block.rule("after", command):
                self._run(block, after, codes={0})

    def _command(self, block: Block, command: str) -> None:
        line = block.rule("instead", command) or command
        if more := block.rule("with", command):
            assert "|" not in line, f"{block.place}: 'with:' cannot be told where in a pipe it belongs"
            for option in set(re.findall(r"--[\w-]+", more)) - {"--set"}:  # takes the place of the page's own
                line = re.sub(rf" {option} \S+", "", line)
            line = f"{line} {more}"
        if wanted := block.rule("until", command):
            self._until(block, line, wanted)
            return
        codes = {int(code) for code in (block.rule("exit", command) or "0").split(",")}
        measures = is_run(line)
        if measures and block.rule("exit", command) is None:
            codes = {0, 1, 2}  # what it measures is judged elsewhere: here it must end with a report
        began = time.time_ns()
        said = self._run(block, line, codes=codes)
        if measures and codes == {0, 1, 2}:
            reports = [path for path in self.directory.rglob("report.html") if path.stat().st_mtime_ns >= began]
            assert reports, f"{block.place}: {line}: no report\n{said}"
        for wanted in block.rules_for("says", command):
            assert wanted in said, f"{block.place}: {line}: no {wanted!r} in\n{said}"

    def _run(self, block: Block, line: str, *, codes: set[int]) -> str:
        return self._finish(block, line, ["bash", "-euo", "pipefail", "-c", line], codes)

    def python(self, block: Block) -> None:
        if "def test_" in block.text:
            script = self.directory / f"test_block_{block.line}.py"
            script.write_text(block.text)
            argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", script.name]
        else:
            argv = [sys.executable, "-c", block.text]
        said = self._finish(block, argv[1], argv, {0})
        for wanted in block.says:
            assert wanted in said, f"{block.place}: no {wanted!r} in\n{said}"

    def _finish(self, block: Block, name: str, argv: list[str], codes: set[int]) -> str:
        done = subprocess.run(
            argv,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=self.timeout_s,
        )
        assert done.returncode in codes, f"{block.place}: {name}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def _until(self, block: Block, line: str, wanted: str) -> None:
        """Run a command that never ends by itself until it has said what it is for; it must take Ctrl-C well."""
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"exec {line}"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with _killed_after(process, self.timeout_s):
            assert process.stdout is not None
            said = ""
            while wanted not in said:
                output = process.stdout.readline()
                assert output, f"{block.place}: {line}: ended without {wanted!r}\n{said}"
                said += output
            os.killpg(process.pid, signal.SIGINT)
            rest, _ = process.communicate(timeout=self.timeout_s)
        assert process.returncode == 0, f"{block.place}: {line}: exit code {process.returncode}\n{said}{rest}"


@contextmanager
def _killed_after(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def is_run(line: str) -> bool:
    """Tell whether a command measures: `./lab run FILE` without `--dry-run`."""
    words = shlex.split(line)
    if words[:1] != ["./lab"] or "--dry-run" in words:
        return False
    at = 1
    while at < len(words) and words[at] in ("--on", "--clock"):
        at += 2
    return words[at : at + 1] == ["run"]


def is_scenario(text: str) -> bool:
    return any(line.startswith("workload:") for line in text.splitlines())


def is_price_list(text: str) -> bool:
    return any(line.startswith(("switches:", "optics:", "cables:")) for line in text.splitlines())


def is_pool(text: str) -> bool:
    return text.startswith("machines:")


def merge_yaml(base: str, over: str) -> str:
    """YAML text with the mappings of `over` merged into those of `base`; plain scalars stay as they are written."""
    below, above = (yaml.compose(text, Loader=yaml.SafeLoader) for text in (base, over))
    if not isinstance(below, yaml.MappingNode) or not isinstance(above, yaml.MappingNode):
        raise ValueError("both must be mappings")
    _merge(below, above)
    return yaml.serialize(below, Dumper=yaml.SafeDumper)


def _merge(below: yaml.MappingNode, above: yaml.MappingNode) -> None:
    places = {key.value: place for place, (key, _) in enumerate(below.value)}
    for key, value in above.value:
        place = places.get(key.value)
        if place is None:
            below.value.append((key, value))
        elif isinstance(value, yaml.MappingNode) and isinstance(below.value[place][1], yaml.MappingNode):
            _merge(below.value[place][1], value)
        else:
            below.value[place] = (below.value[place][0], value)
