"""Running a verb in the lab VM or on another machine: what `--on` and `--clock` ask for.

With `--on vm --clock virtual` it runs in a machine of its own, and its records are finished here.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from testbed.base.errors import TestbedError
from testbed.vm.remote.target import Renamed, parse_target, run_there

VERBS = frozenset({"run", "doctor", "validate"})
RESULTS_OPTIONS = ("--results", "-o")
TIMEOUT_S = 4 * 3600.0


def run_elsewhere(on: str, clock: str, arguments: list[str]) -> int:
    """Run a verb where `on` says; returns its exit code. `clock` is wall or virtual."""
    target = parse_target(on)
    if clock == "wall" and arguments[:1] == ["console"]:
        from testbed.cli.machine.forwarded_console import forward_console

        return forward_console(target, arguments[1:])
    if clock == "wall":
        return run_there(target, arguments)
    if clock != "virtual":
        raise TestbedError(f"--clock {clock}: expected wall or virtual")
    if target.machine is None:
        raise TestbedError("--clock virtual: time is virtual in the lab VM only: --on vm")
    return run_in_virtual_time(arguments)


def run_in_virtual_time(arguments: Sequence[str]) -> int:
    """Run the verb there and return its exit code. Reports are drawn here, which takes no time of the guest."""
    from testbed.record.report import write_report_files
    from testbed.record.store import RECORD_FILE, load_record, write_record
    from testbed.vm.emulator import build_emulator
    from testbed.vm.image.build import build_image
    from testbed.vm.image.recipe import load_recipe
    from testbed.vm.remote.recorded_command import asked_command
    from testbed.vm.virtual.job import BASE
    from testbed.vm.virtual.machine import RESULTS, VirtualJob, run_job

    if not arguments or arguments[0] not in VERBS:
        raise TestbedError(
            f"--clock virtual: {' '.join(arguments[:1])} cannot run in virtual time",
            hint="the machine does one job and powers off: run SCENARIO.yml",
        )
    recipe = load_recipe()
    image, _ = build_image(recipe, lambda step: print(f"building the image: {step}", file=sys.stderr, flush=True))
    emulator = build_emulator(recipe)
    running = arguments[0] == "run"
    reporting = running and "--no-report" not in arguments
    words, results = results_aside(arguments, RESULTS) if running else (list(arguments), Path("results"))
    names = {RESULTS: str(results), BASE: ""}
    out, err = (Renamed(names, partial(os.write, number)) for number in (1, 2))
    job = VirtualJob(
        arguments=[*words, "--no-report"] if reporting else words,
        directory=Path.cwd(),
        results=results,
        variables={key: value for key, value in os.environ.items() if _is_ours(key)},
    )
    outcome = run_job(emulator, image, job, stdout=out, stderr=err, timeout_s=TIMEOUT_S)
    out.flush()
    err.flush()
    for path in outcome.files:
        if path.name == RECORD_FILE and running:
            wall_s = round(outcome.wall_s, 1)
            record = dataclasses.replace(load_record(path), wall_s=wall_s, command=asked_command())
            write_record(record, path)
            if reporting:
                print(f"report {write_report_files(record, path.parent)}")
    print(
        f"virtual time: the guest's clock came to {outcome.guest_s:.1f} s in {outcome.wall_s:.0f} s of wall-clock time",
        file=sys.stderr,
    )
    return outcome.status


def results_aside(arguments: Sequence[str], there: str) -> tuple[list[str], Path]:
    """Return the arguments of `run` with `there` as the directory of results, and the directory that was asked for."""
    results, rest, words = Path("results"), [], list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            rest += [word, *words]
            break
        name, separator, value = word.partition("=")
        if name in RESULTS_OPTIONS and (separator or words):
            results = Path(value if separator else words.pop(0))
        else:
            rest.append(word)
    return [rest[0], RESULTS_OPTIONS[0], there, *rest[1:]], results


def _is_ours(name: str) -> bool:
    """Tell whether a variable goes along: defaults of options do, directories of this machine do not."""
    return name.startswith("TESTBED_") and not name.endswith(
        ("_DIR", "_QEMU", "_MIRROR", "_ON", "_CLOCK", "_CACHE", "_COMMAND")
    )
