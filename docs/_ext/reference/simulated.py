"""Which of the shipped scenarios can be simulated, and why others cannot, as the simulator itself says it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reference.markdown import code, plain, sentence, table
from testbed.base.errors import ScenarioError
from testbed.protocols.tcp.congestion.registry import TCP_CONTROLS
from testbed.run.simulated.support import REAL_PROGRAMS, check_supported
from testbed.run.simulated.time_scale import REAL_TIME, time_scale
from testbed.run.simulated.transport_registry import simulated_names
from testbed.run.sweep.points import Sweep
from testbed.run.sweeps import read_sweep

ROOT = Path(__file__).parents[3]
SHIPPED = ("*.yml", "papers/*.yml")
"""All but the large ones, which are for flows."""


def page() -> str:
    rows: list[tuple[str, str, str]] = []
    refused: list[tuple[str, str]] = []
    for path in [path for part in SHIPPED for path in sorted((ROOT / "scenarios").glob(part))]:
        sweep = read_sweep(path)
        try:
            check_supported(sweep)
        except ScenarioError as error:
            refused.append((code(path.stem), plain(sentence(error.message))))
        else:
            rows.append((code(path.stem), _kinds(sweep), _scales(sweep)))
    text = "# What is simulated\n\n"
    text += (
        f"Of {len(rows) + len(refused)} shipped scenarios, {len(rows)} can be run with `--backend simulation`; the"
        " others are about real programs, or need what no simulation of this project has. Transports that are"
        f" simulated are {_listed(simulated_names())}, TCP with {_listed(TCP_CONTROLS)}. Each is simulated at the time"
        " scale k that the table says: 1 where all times are those of the fabric, the lab's where some are not.\n\n"
    )
    text += table(("Scenario", "Transports", "k"), rows)
    text += "## What is refused\n\n"
    text += table(("Scenario", "Why"), refused)
    text += "Transports that are real programs, whatever the scenario:\n\n"
    text += table(("Transport", "What it is"), [(code(kind), plain(what)) for kind, what in REAL_PROGRAMS.items()])
    return text


def _kinds(sweep: Sweep) -> str:
    kinds = dict.fromkeys(one.kind.value for point in sweep.points for one in point.scenario.transports)
    return ", ".join(map(code, kinds))


def _scales(sweep: Sweep) -> str:
    scales = sorted({time_scale(sweep.lab_of(point), point.scenario) for point in sweep.points})
    return ", ".join("1" if k == REAL_TIME else f"{k:,.0f}" for k in scales)


def _listed(names: Iterable[str]) -> str:
    words = [code(name) for name in names]
    return ", ".join(words[:-1]) + f" and {words[-1]}"
