"""The tests that `check` runs of a subnet: its programs, its routes and shifts, its lanes, its partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from testbed.daemons.subnetd.process import tables_digest
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckResult, CheckStatus, judge
from testbed.lab.features.infiniband.live import LiveSubnet
from testbed.lab.features.infiniband.running import SIMULATOR
from testbed.lab.features.infiniband.wires import MOST_HCAS
from testbed.protocols.infiniband.data_path import circle_words
from testbed.protocols.infiniband.routes import RouteReport, is_full_fat_tree, judge_routes
from testbed.protocols.infiniband.subnet import Subnet


class SubnetChecks:
    """The tests of a lab's subnet, which is read once for all of them."""

    def __init__(self, lab: RunningLab) -> None:
        self.live = LiveSubnet(lab)

    @cached_property
    def subnet(self) -> Subnet:
        """The subnet as its nodes hold it."""
        return self.live.reader.read()

    @cached_property
    def report(self) -> RouteReport:
        """The findings of all its paths."""
        return judge_routes(self.subnet)

    def all(self) -> tuple[tuple[str, Callable[[RunningLab], CheckResult]], ...]:
        """Return the tests with their names."""
        return (
            ("subnet managers", self.check_managers),
            ("subnet links", self.check_links),
            ("routing engine", self.check_engine),
            ("subnet routes", lambda _: routes_result(self.report)),
            ("shifts", lambda _: shifts_result(self.subnet, self.report)),
            ("deadlock", lambda _: deadlock_result(self.report)),
            ("lanes", self.check_lanes),
            ("partitions", self.check_partitions),
            ("subnet wires", self.check_wires),
        )

    def check_managers(self, _: RunningLab) -> CheckResult:
        """ibsim runs, every manager answers, and one is the master."""
        subnet = self.live
        dead = subnet.ended()
        failures = [
            "ibsim, which holds the subnet, does not run"
            if name == SIMULATOR
            else f"the subnet manager at {name} has ended: `testbed apply --repair` starts it"
            for name in dead
        ]
        if SIMULATOR not in dead:
            states = [state for state in subnet.reader.managers() if state.hca not in dead]
            failures += [
                f"the subnet manager at {state.hca} does not answer" for state in states if state.state == "dead"
            ]
            masters = [state.hca for state in states if state.state == "master"]
            if len(masters) != 1:
                failures.append(f"{len(masters)} subnet managers are master")
        return judge(len(subnet.planned.managers), "subnet managers", failures)

    def check_links(self, _: RunningLab) -> CheckResult:
        """Every link of the subnet is up."""
        links = list(self.live.links())
        failures = [f"{state.a} - {state.b} is down: `testbed link up {state.a}`" for state in links if not state.up]
        return judge(len(links), "links of the subnet", failures)

    def check_engine(self, _: RunningLab) -> CheckResult:
        """The tables are those of the routing engine that was asked for first."""
        subnet = self.live
        nodes = subnet.simulator.dump()
        found, sentence = subnet.reader.engine(nodes), subnet.engine_sentence(nodes)
        return engine_result(subnet.fabric.settings.routing[0], found, sentence)

    def check_lanes(self, _: RunningLab) -> CheckResult:
        """Every port maps service levels to lanes as the file says."""
        subnet = self.live
        wanted = subnet.fabric.settings.sl2vl
        if not subnet.fabric.settings.has_lanes:
            return judge(0, "tables of lanes, one lane for all", [])
        tables = list(subnet.reader.lane_tables())
        failures = [
            f"{name} does not answer"
            if table is None
            else f"{name} has the lanes {_listed(table)}, not {_listed(wanted)}"
            for name, table in tables
            if table != wanted
        ]
        return judge(len(tables), "tables of lanes", failures)

    def check_partitions(self, _: RunningLab) -> CheckResult:
        """Every HCA has the P_Keys of its partitions, and no others."""
        reader = self.live.reader
        wanted, found = reader.wanted_pkeys(), reader.pkey_tables()
        failures = [
            f"{name} does not answer"
            if keys is None
            else f"{name} has the P_Keys {_keys(keys)}, not {_keys(wanted[name])}"
            for name, keys in found.items()
            if keys != wanted[name]
        ]
        return judge(len(found), "tables of P_Keys", failures)

    def check_wires(self, _: RunningLab) -> CheckResult:
        """Frames go by the tables that nodes hold, and over the links that are up."""
        if self.live.wires is None:
            detail = f"no frames are carried: wires are for {MOST_HCAS} HCAs at most"
            return CheckResult(name="", status=CheckStatus.PASS, count=0, detail=detail)
        if not self.live.wires.is_running():
            return judge(1, "wires of the subnet", ["they have ended: `testbed apply --repair` starts them"])
        status = self.live.wires.status()
        failures = []
        if status["tables"] != tables_digest(self.subnet):
            failures.append("frames go by other tables than the nodes hold: `testbed link down` and `up` renew them")
        failures += [
            f"{node}:{port} lacks {share:.0%} of the credits of VL {vl}" for node, port, vl, share in status["leaks"]
        ]
        return judge(len(self.subnet.switches), "tables of switches in force on the wires", failures)


def engine_result(wanted: str, found: str, sentence: str) -> CheckResult:
    """Judge the engine whose tables are in force: `found`, "" where no log says, and the sentence for another one."""
    if not found:
        detail = "no subnet manager's log says whose tables are in force"
        return CheckResult(name="", status=CheckStatus.UNKNOWN, count=0, detail=detail)
    return judge(1, f"routing engine, {wanted},", [sentence] if sentence else [])


def routes_result(report: RouteReport) -> CheckResult:
    """Judge the routes of all pairs."""
    lines = [f"no route from {source} to {destination}" for source, destination in report.broken_pairs]
    result = judge(report.pairs, f"pairs of HCAs routed, {report.longest} links at most", lines)
    if not report.broken:
        return result
    detail = f"{report.broken} of {report.pairs} pairs of HCAs have no route"
    return CheckResult(name="", status=CheckStatus.FAIL, count=report.pairs, detail=detail, failures=result.failures)


def shifts_result(subnet: Subnet, report: RouteReport) -> CheckResult:
    """Judge the shifts of a subnet: they contend on no link of a full fat tree that ftree routes."""
    shifts = len(report.worst_flows)
    found = f"{report.free_shifts} of {shifts} shifts without contention, {max(report.worst_flows, default=0)} flows on"
    found += " the busiest link between switches"
    if subnet.engine != "ftree" or not is_full_fat_tree(subnet):
        why = "no full fat tree" if subnet.engine == "ftree" else f"{subnet.engine}'s tables"
        detail = f"{found} ({why}: nothing is promised)"
        return CheckResult(name="", status=CheckStatus.PASS, count=shifts, detail=detail)
    failures = [
        f"the shift by {shift} has {flows} flows on a link"
        for shift, flows in enumerate(report.worst_flows, 1)
        if flows > 1
    ]
    return judge(shifts, "shifts without contention (D-mod-K)", failures)


def deadlock_result(report: RouteReport) -> CheckResult:
    """Judge the dependencies of all lanes."""
    failures = []
    if report.cycle:
        failures.append(f"VL {report.cyclic_lane}: {circle_words([f'{name}:{port}' for name, port in report.cycle])}")
    return judge(len(report.lanes), "lanes without a cycle of dependencies", failures)


def _listed(table: Sequence[int]) -> str:
    return ",".join(map(str, table))


def _keys(keys: Sequence[int] | frozenset[int]) -> str:
    return ", ".join(f"{key:#06x}" for key in sorted(keys)) or "none"
