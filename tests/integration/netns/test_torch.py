"""PyTorch data-parallel training on a lab: over gloo and over the backend `lab`, with and without a failing uplink."""

import json
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = "/usr/bin/python3"
STEPS = 12
FAULTS = """faults:
  - {at: {step: 3}, until: {step: 5}, link: "p1-s1-rail1:uplink1", down: true}
  - {at: {step: 5}, until: {step: 7}, link: "p1-s1-rail1:uplink2", down: true}
"""
pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _needs_torch() -> None:
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip("apt-get install python3-torch")


def train(sandbox: Any, name: str, *, backend: str = "gloo", faults: str = "") -> tuple[list[float], dict[str, Any]]:
    """The losses of rank 0, and the run, of a training on four hosts behind two leaves with two spines."""
    packages = sysconfig.get_path("purelib")
    module = f'"--module", testbed.run.launch.torch_backend, "--path", {packages}, ' if backend == "lab" else ""
    path = sandbox.work / f"{name}.yml"
    path.write_text(
        f"""name: {name}
topology:
  inline:
    name: {sandbox.name()}
    scale: {{time: 20000}}
    fabric:
      design: rail-optimized
      segments: 2
      hosts: 2
      gpus: 1
      spines: 2
      uplink: {{rate: 400G, count: 1}}
      routing: {{bfd: "off"}}
workload:
  kind: program
  command: [{PYTHON}, {ROOT}/scenarios/programs/ddp.py, "--backend", {backend}, {module}"--steps", "{STEPS}"]
  env: ["PYTHONPATH={ROOT}", TESTBED_PURE=1]
  step: "step (?P<step>\\\\d+) loss [\\\\d.]+ took (?P<seconds>[\\\\d.]+) s"
  bytes: 925568
  ranks: {{order: rail}}
  time_limit: 4m
probes: off
{faults}
"""
    )
    done = sandbox.cli("run", str(path), "-f", "json", "--no-report", timeout_s=400.0)
    found = sorted(sandbox.work.glob(f"results/{name}-*/record.json"))
    assert found, done.stderr
    record = json.loads(found[-1].read_text())
    (run,) = record["points"][0]["runs"]
    lines = run["program"]["ranks"][0]["last_lines"]
    assert run["program"]["exit_code"] == 0, (run["program"]["failure"], lines[-12:])
    return [float(one) for line in lines for one in re.findall(r"loss ([\d.]+)", line)], dict(run)


def test_a_failing_uplink_costs_time_and_changes_no_loss(sandbox: Any) -> None:
    whole, steady = train(sandbox, "steady")
    failing, faulty = train(sandbox, "failing", faults=FAULTS)
    assert len(whole) == STEPS and whole[-1] < 0.8 * whole[0], "it learns"
    assert failing == whole, "to the last digit"
    assert {event["kind"] for event in faulty["events"]} >= {"link-down", "undone-link-down"}
    assert steady["program"]["sent_bytes"] > STEPS * steady["program"]["stated_bytes"]
    print({name: run["metrics"]["program_step_p99"] for name, run in (("steady", steady), ("failing", faulty))})


def test_the_backend_in_the_words_of_uet_trains_as_gloo_does(sandbox: Any) -> None:
    over_gloo, _ = train(sandbox, "gloo")
    over_uet, run = train(sandbox, "uet", backend="lab")
    assert over_uet == pytest.approx(over_gloo, abs=2e-3), "sums are rounded in another order"
    assert run["program"]["sent_bytes"] > STEPS * run["program"]["stated_bytes"]
    print(run["metrics"])
