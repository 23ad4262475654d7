"""`validate` of several files: designs in one table, what is wrong with one of them, and prices."""

import csv
import io
import json
from itertools import groupby
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from testbed.base.errors import SpecError, TestbedError
from testbed.cli.app import app

ROOT = Path(__file__).parents[3]
DEMO, SPRAY, RAILS, DATACENTRE, CONVERGED = (
    str(ROOT / "topologies" / f"{name}.yml") for name in ("demo", "uec-spray", "rail-only", "datacentre", "converged")
)
SCENARIO, OTHER = (str(ROOT / "scenarios" / f"{name}.yml") for name in ("incast-trimming", "rail-permutation"))
PRICES = """\
switches:
  t64: {ports: 64, rate: 400G, price: 30000, watts: 700}
optics: {400G: {price: 700, watts: 9}}
cables: {aoc: {400G: {price: 900, watts: 12}}, fibre: {price: 40}}
power: {price_per_kwh: 0.1, pue: 1.5, years: 4}
"""

SAME_ASN = """\
name: x
fabric: {design: single-switch, hosts: 2, gpus: 1}
networks:
  storage:
    design: hand-written
    switches: {l1: {role: leaf, asn: 4200001024}, s1: {role: spine}}
    links:
      - {endpoints: ["p1-s1-h1:a", "l1:eth1"]}
      - {endpoints: ["l1:up", "s1:eth1"]}
"""


@pytest.fixture(autouse=True)
def nothing_is_deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TESTBED_RUN_DIR", str(tmp_path / "run"))


@pytest.fixture
def prices(tmp_path: Path) -> str:
    (tmp_path / "prices.yml").write_text(PRICES)
    return str(tmp_path / "prices.yml")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    (tmp_path / "bad.yml").write_text("name: bad\nfabric:\n  design: rail-optimized\n  hosts: -1\n")
    return str(tmp_path / "bad.yml")


def invoke(*argv: str) -> Result:
    return CliRunner().invoke(app, ["validate", *argv])


def output(*argv: str) -> str:
    done = invoke(*argv)
    assert done.exception is None, (argv, done.exception)
    return done.stdout


def table(*argv: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell; cells are apart by two spaces."""
    lines = [line for line in output(*argv).splitlines() if ": valid: " not in line]
    starts = [0, *(at for at in range(2, len(lines[0])) if lines[0][at - 2 : at] == "  " and lines[0][at] != " ")]
    cells = [[line[low:high].strip() for low, high in zip(starts, [*starts[1:], None], strict=True)] for line in lines]
    return {first: rest for first, *rest in cells}


def test_a_column_for_each_design() -> None:
    rows = table(DEMO, RAILS)
    assert rows["what"] == ["demo", "rail-only"]
    assert rows["GPUs"] == ["16", "32"]
    assert rows["rail switches"] == ["4", "8"]
    assert rows["spine switches"] == ["4", ""]
    assert rows["oversubscription, rail switches"] == ["1.00:1", ""]
    assert rows["rail traffic"] == ["1.00:1", "1.00:1"]
    assert rows["all-to-all traffic"] == ["1.00:1", "rails apart; 1.00:1 if hosts relay"]
    assert rows["rail traffic between hosts of a segment"] == ["1.00:1", "1.00:1"]
    assert rows["all-to-all traffic between hosts of a segment"] == ["1.00:1", "rails apart; 1.00:1 if hosts relay"]
    assert rows["switches passed, other rail, same segment"] == ["3", "not joined"]
    assert rows["equal-cost paths, other segment, same pod"] == ["4", ""]
    assert rows["ECMP width, rail switches"] == ["4", ""]
    assert rows["rail switch dies"] == ["4 GPUs lose 100%", "4 GPUs lose 100%"]
    assert rows["spine switch dies"] == ["16 GPUs lose 25%", ""]
    assert rows["cables, AOC 400 Gbit/s"] == ["16", "32"]
    assert not any("price" in what for what in rows)


def test_designs_for_programs() -> None:
    documents = json.loads(output("-f", "json", DEMO, RAILS))
    assert [one["file"] for one in documents] == [DEMO, RAILS]
    first, second = documents
    assert {(load["pattern"], load["between"]): load["oversubscription"] for load in first["sizing"]["traffic"]} == {
        ("rail", "hosts"): 1.0,
        ("all-to-all", "hosts"): 1.0,
        ("rail", "segments"): 1.0,
        ("all-to-all", "segments"): 1.0,
    }
    assert first["sizing"]["widths"][0] == {"role": "rail", "ways": 4, "installed": 4}
    assert first["cables"][-1] == {"cable": "optics", "rate_bps": 400 * 10**9, "count": 16}
    assert [one["what"] for one in second["failures"]] == ["NIC link", "rail switch"]
    assert second["sizing"]["traffic"][1]["joined"] == 1 / 8
    rows = list(csv.DictReader(io.StringIO(output("-f", "csv", DEMO, RAILS))))
    by_name = {row["what"]: (row[DEMO], row[RAILS]) for row in rows}
    assert by_name["GPUs"] == ("16", "32")
    assert by_name["rail traffic between hosts of a segment"] == ("1.0", "1.0")
    assert by_name["all-to-all traffic between hosts of a segment"] == ("1.0", "")
    assert {row["network"] for row in rows} == {"backend"}


def test_networks_of_a_data_centre_stand_below_each_other() -> None:
    lines = output(DATACENTRE, DEMO).splitlines()
    heads = next(line for line in lines if line.startswith("network"))
    assert heads.split() == ["network", "what", "datacentre", "demo"]
    assert any(line.startswith("frontend") and "leaf switches" in line for line in lines)
    assert any(line.startswith("storage") and "hosts lose 50%" in line for line in lines)
    networks = [line.split()[0] for line in output(CONVERGED, DATACENTRE).splitlines()[3:]]
    assert [one for one, _ in groupby(networks)] == ["backend", "frontend", "storage", "management"]


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "demo.yml").write_text(Path(DEMO).read_text())
    other = str(tmp_path / "demo.yml")
    assert other in output(DEMO, other)


def test_one_file_has_the_same_figures_with_notes() -> None:
    lines = output(DEMO).splitlines()
    dies = next(line for line in lines if line.startswith("spine switch dies"))
    assert "16 GPUs lose 25%" in dies and "the worst of 4: p1-spine1" in dies
    assert any(line.split() == ["cables,", "AOC", "400", "Gbit/s", "16"] for line in lines)
    assert sum("traffic" in line for line in lines) == 2, "rail and all-to-all between segments"


def test_settings_are_those_of_all_designs() -> None:
    rows = table(DEMO, SPRAY, "--set", "fabric.hosts=2")
    assert rows["GPUs"][0] == "8"


def test_one_that_is_wrong_is_told_and_the_others_are_shown(bad: str) -> None:
    done = invoke(DEMO, bad, RAILS)
    alone = invoke(bad).exception
    assert isinstance(done.exception, SpecError) and isinstance(alone, SpecError)
    assert done.exception.exit_code == alone.exit_code and str(done.exception) == str(alone)
    assert "bad.yml:4:10" in str(done.exception)
    assert f"{DEMO}: valid" in done.stdout and f"{RAILS}: valid" in done.stdout and "bad" not in done.stdout
    heads = next(line for line in done.stdout.splitlines() if line.startswith("what"))
    assert heads.split() == ["what", "demo", "rail-only"]
    documents = json.loads(invoke("-f", "json", DEMO, bad).stdout)
    assert [one["file"] for one in documents] == [DEMO]
    assert invoke("-f", "csv", bad, DEMO).stdout.splitlines()[0] == f"network,what,{DEMO}"


def test_a_file_that_is_missing_or_no_mapping_hides_no_other(tmp_path: Path, bad: str) -> None:
    (tmp_path / "list.yml").write_text("- 1\n")
    done = invoke(str(tmp_path / "none.yml"), str(tmp_path / "list.yml"), DEMO, bad)
    assert isinstance(done.exception, SpecError)
    assert {problem.code for problem in done.exception.problems} >= {"unreadable", "not-a-mapping"}
    assert "bad.yml:4:10" in str(done.exception)
    assert "hosts, GPUs" in done.stdout or "demo" in done.stdout


def test_what_the_plan_finds_is_told_beside_what_the_schema_finds(tmp_path: Path, bad: str) -> None:
    """A leaf has the AS number that the plan gives to its neighbour."""
    (tmp_path / "asn.yml").write_text(SAME_ASN)
    done = invoke(str(tmp_path / "asn.yml"), bad, DEMO)
    assert isinstance(done.exception, SpecError) and f"{DEMO}: valid" in done.stdout
    assert {problem.code for problem in done.exception.problems} == {"same-asn", "out-of-range"}


def test_scenarios_beside_one_that_is_wrong(tmp_path: Path) -> None:
    text = Path(SCENARIO).read_text().replace("../topologies", str(ROOT / "topologies"))
    (tmp_path / "wrong.yml").write_text(text.replace("kind: incast,", "kind: incats,"))
    wrong = str(tmp_path / "wrong.yml")
    for form in ("table", "json", "csv"):
        done = invoke("-f", form, SCENARIO, wrong, OTHER)
        assert isinstance(done.exception, SpecError) and "wrong.yml" in str(done.exception)
        assert SCENARIO in done.stdout and OTHER in done.stdout and "wrong.yml" not in done.stdout


def test_one_alone_is_told_as_before(bad: str) -> None:
    done = invoke(bad)
    assert isinstance(done.exception, SpecError) and done.stdout == ""


def test_cost_and_power_of_the_demo_by_hand(prices: str) -> None:
    """8 switches, 16 active cables to hosts, 16 optical links: 240,000 + 22,400 + 15,040 USD; 5,600 + 288 + 192 W."""
    rows = table("--prices", prices, DEMO)
    assert rows["price of switches"] == ["240,000 USD"]
    assert rows["price of optics"] == ["22,400 USD"]
    assert rows["price of cables"] == ["15,040 USD"]
    assert rows["price of all parts"] == ["277,440 USD"]
    assert rows["power of all parts"] == ["6.1 kW"]
    assert rows["energy of 4 years"] == [f"{6.08 * 1.5 * 8766 * 4 * 0.1:,.0f} USD"]
    document = json.loads(output("--prices", prices, "-f", "json", DEMO))
    assert document["cost"]["price"] == 277_440 and document["cost"]["watts"] == 6080
    assert {item["part"]: item["number"] for item in document["cost"]["items"]}["t64"] == 8


def test_what_has_no_price_is_named(prices: str, tmp_path: Path) -> None:
    (tmp_path / "fast.yml").write_text("name: fast\nfabric: {design: rail-optimized, nic: {rate: 800G}}\n")
    done = invoke("--prices", prices, DEMO, str(tmp_path / "fast.yml"))
    assert done.exception is None
    assert "fast.yml: its cost is unknown: " in done.stderr
    assert "switch with 8 ports of 800 Gbit/s" in done.stderr
    rows = table("--prices", prices, DEMO, str(tmp_path / "fast.yml"))
    assert rows["price of all parts"] == ["277,440 USD", "unknown"]


def test_a_price_list_that_is_wrong_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "prices.yml").write_text("optics:\n  400G: {price: much}\n")
    done = invoke("--prices", str(tmp_path / "prices.yml"), DEMO)
    assert isinstance(done.exception, SpecError) and "prices.yml:2:17: " in str(done.exception)
    assert done.stdout == ""


def test_prices_are_of_topologies(prices: str) -> None:
    done = invoke("--prices", prices, SCENARIO)
    assert isinstance(done.exception, TestbedError) and "no topology" in str(done.exception)
