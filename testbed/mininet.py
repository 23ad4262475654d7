"""A lab as a Mininet network, for scripts and people that speak Mininet.

    from testbed.mininet import CLI, build

    net = build("topologies/demo.yml")
    net.start()
    net.pingAll()
    net["p1-s1-h1"].cmd("ip route")
    CLI(net)
    net.stop()

`build` carries out the plan of the file, as `testbed deploy` does, and makes Mininet's objects of it: hosts, FRR
switches, links and interfaces, whose queues, addresses and routes are those of the plan. `attach` makes them of a lab
that is deployed. The shell of a node that is a container has the container's network and the machine's files: Mininet
knows no containers. Importing this module needs Mininet, Debian's or PyPI's, and raises `CapabilityError` without it.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from testbed.api import DeployKeywords, load_model
from testbed.base.errors import CapabilityError, DriverError, TestbedError
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.lifecycle import DEFAULT_TIMEOUT_S, DeployOptions, DeployOutcome, deploy_lab, destroy_lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.node_files import view_of
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.routing import start_routing, stop_routing
from testbed.lab.core.deploy.scale import resolve_scale
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.model import Lab, NodeKind
from testbed.lab.core.plan.operations import AddAddress, CreateNode, CreateVeth, Operation, StartContainer
from testbed.lab.features.mininet.objects import LOOPBACK_PORT, FrrSwitch, LabCLI, LabHost, LabIntf, LabLink
from testbed.lab.features.scale_up.plan.domains import domain_nodes

from mininet.log import output  # isort: skip - the lines above have found it
from mininet.net import Mininet  # isort: skip

RUNTIME = "mininet"
CLI = LabCLI
OPEN_FILES = 16384
"""As Mininet itself raises it (mininet.util.fixLimits)."""

__all__ = ["CLI", "RUNTIME", "LabNet", "attach", "build"]


class LabNet(Mininet):  # type: ignore[misc]
    """A Mininet network whose nodes and links are those of a lab.

    `realise` adds the objects of operations that have been carried out. `owner`: `stop` destroys the lab, else it
    only lets go of it. `tag` and `outlive` are those of `LabNode`. Nodes and links of other classes may be added to it.
    """

    def __init__(
        self,
        model: Lab,
        state: StateDirectory,
        *,
        owner: bool = False,
        tag: str = RUNTIME,
        outlive: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._model = model
        self._state = state
        self._owner = owner
        self._shells = {"tag": tag, "outlive": outlive}
        self._timeout_s = timeout_s
        self._lab: RunningLab | None = None
        self._beside = frozenset(domain_nodes(model))
        """Places of the lab that are none of its nodes: the switches of scale-up domains."""
        self._whole: frozenset[str] = frozenset()
        _raise_file_limit()
        # Mininet would raise limits of the machine and leave them so (mininet.util.fixLimits).
        before, Mininet.inited = Mininet.inited, True
        try:
            super().__init__(controller=None, build=False)
        finally:
            Mininet.inited = before
        self.built = True

    @property
    def lab(self) -> RunningLab:
        """The lab as the rest of testbed sees it. Raises `LabNotFound` before there is one."""
        if self._lab is None:
            self._lab = RunningLab.open(self._model.name, self._state)
        return self._lab

    def realise(self, operations: Sequence[Operation]) -> None:
        """Make the objects of what these operations have made; those of which Mininet has no notion are passed over."""
        for operation in operations:
            match operation:
                case CreateNode() | StartContainer() if operation.node not in self._beside:
                    self._add_node(operation.node)
                case CreateVeth(a=a, b=b) if b.node not in self._beside:
                    self.addLink(
                        self[a.node],
                        self[b.node],
                        cls=LabLink,
                        intf=LabIntf,
                        intfName1=a.name,
                        intfName2=b.name,
                        addr1=a.mac,
                        addr2=b.mac,
                    )
                case AddAddress(address=address):
                    node = self[operation.node]
                    intf = node.nameToIntf.get(operation.name)
                    if intf is None and operation.name == "lo":
                        intf = LabIntf("lo", node=node, port=LOOPBACK_PORT, moveIntfFn=lambda *_: None)
                        node.controlIntf = intf
                    if intf is not None and address.version == 4:  # None: a bridge, whose ports Mininet knows instead
                        intf.ip, intf.prefixLen = str(address.ip), address.network.prefixlen
                case _:
                    pass

    def _add_node(self, name: str) -> None:
        node = self._model.node(name)
        parameters: dict[str, Any] = {
            "namespace": namespace_name(self._model.name, name),
            "view": view_of(self._state.run_directory(self._model.name), name),
            "env": node.env,
            **self._shells,
        }
        if node.kind is NodeKind.SWITCH:
            self.addSwitch(name, cls=FrrSwitch, routing=self._route, **parameters)
        else:
            self.addHost(name, cls=LabHost, ip=None, **parameters)

    def _route(self, node: str, on: bool) -> None:
        if on:
            if node not in self._whole:
                start_routing(self.lab, node)
        else:
            stop_routing(self.lab, node)

    def build(self) -> None:
        """Everything was built with the object."""

    def start(self) -> None:
        """Start switches whose daemons do not run, and wait until routing has converged.

        Raises `ConvergenceError`, which leaves the network as it is.
        """
        lab = self.lab
        self._whole = frozenset(item.name for item in lab.status() if item.state == "running")
        try:
            super().start()
        finally:
            self._whole = frozenset()
        if lab.daemons:
            watch = ConvergenceWatch(lab.plan, self._state.run_directory(lab.name))
            try:
                watch.wait(self._timeout_s, ignore_steps)
            finally:
                watch.close()

    def stop(self) -> None:
        """End the nodes' shells; the lab goes too where this network is its owner."""
        self.release()
        if self._owner:
            destroy_lab(self._model.name, self._state)

    def release(self) -> None:
        """Let go of the nodes: their shells end, unless they are to outlive this process."""
        if self.terms:
            self.stopXterms()
        for node in self.values():
            if self._shells["outlive"] and isinstance(node, (LabHost, FrrSwitch)):
                continue
            node.terminate()
        for collection in (self.hosts, self.switches, self.links, self.nameToNode):
            collection.clear()

    def iperf(
        self,
        hosts: Sequence[Any] | None = None,
        l4Type: str = "TCP",  # noqa: N803 - Mininet's name
        udpBw: str = "10M",  # noqa: N803 - Mininet's name
        fmt: str | None = None,
        seconds: int = 5,
        port: int = 5001,
    ) -> list[str]:
        """Run iperf 2 from the first to the second host: speeds of server and client, for UDP after `udpBw`.

        As Mininet's, which waits for a second report, on the connection by which it has seen that the server listens:
        iperf 2.1 makes none of that, and Mininet's waits for ever. Raises `CapabilityError` where there is no iperf,
        `DriverError` where it fails.
        """
        if l4Type not in ("TCP", "UDP"):
            raise DriverError(f"iperf: {l4Type} is neither TCP nor UDP")
        if shutil.which("iperf") is None:
            raise CapabilityError("iperf is not installed", missing="iperf", hint="apt-get install iperf")
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        output("*** Iperf: testing", l4Type, "bandwidth between", client, "and", server, "\n")
        common = ["iperf", "-p", str(port), *(["-u"] if l4Type == "UDP" else []), *(["-f", fmt] if fmt else [])]
        serving = server.popen([*common, "-s", "-P", "1"], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            heard = b""
            while b"listening" not in heard and (line := serving.stdout.readline()):
                heard += line
            bandwidth = ["-b", udpBw] if l4Type == "UDP" else []
            said = client.cmd([*common, "-t", str(seconds), "-c", server.IP(), *bandwidth])
            if "/sec" not in said:
                raise DriverError(f"iperf from {client} to {server} failed: {said.strip()}{heard.decode().strip()}")
            heard += serving.stdout.read()
        finally:
            serving.kill()
            serving.wait()
            serving.stdout.close()
        speeds = [self._parseIperf(heard.decode()), self._parseIperf(said)]
        output(f"*** Results: {speeds}\n")
        return [udpBw, *speeds] if l4Type == "UDP" else speeds

    def interact(self) -> Any:
        """Start, open the prompt, stop."""
        self.start()
        try:
            return CLI(self)
        finally:
            self.stop()


def _raise_file_limit() -> None:
    """Room for two descriptors of each shell beside three of each namespace, in this process, as far as it may.

    No more than that: daemons inherit it, and FRR makes its tables as large.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def build(
    topology: str | Path,
    *,
    name: str | None = None,
    overrides: Mapping[str, object] | None = None,
    **how: Unpack[DeployKeywords],
) -> LabNet:
    """A network of a topology file, or of YAML text if it has a line break; its nodes and links are there.

    `start` waits until routing has converged, `stop` destroys the lab. A lab that is deployed as asked already, by a
    script that was killed, is used as it stands. `overrides` replaces keys of the file ({"fabric.hosts": 4}); the other
    keyword arguments are those of `DeployKeywords`. Raises the errors of `testbed.base.errors`; after them nothing of
    the lab is left.
    """
    return _build_model(load_model(topology, name=name, overrides=overrides), **how)


def _build_model(
    model: Lab,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    reconfigure: bool = False,
    directory: Path | None = None,
    state: StateDirectory | None = None,
    notify: StepCallback = ignore_steps,
) -> LabNet:
    place = state or StateDirectory()
    net = LabNet(model, place, owner=True, timeout_s=timeout_s)
    options = DeployOptions(
        k=resolve_scale(model, place).k, timeout_s=timeout_s, wait=False, reconfigure=reconfigure, directory=directory
    )
    deploy(net, model, place, options, notify)
    return net


def deploy(
    net: LabNet, model: Lab, state: StateDirectory, options: DeployOptions, notify: StepCallback = ignore_steps
) -> DeployOutcome:
    """Deploy `model` with runtime mininet, and fill `net` with its objects."""
    _refuse_vrfs(model)
    try:
        outcome = deploy_lab(model, state, replace(options, runtime=RUNTIME, realised=net.realise), notify)
        if not outcome.changed:
            net.realise(outcome.lab.plan.operations)
    except BaseException:
        net.release()
        raise
    return outcome


def _refuse_vrfs(model: Lab) -> None:
    """Raise `TestbedError` for a lab with tenants: Mininet knows a switch as one namespace."""
    if model.overlay is not None and model.overlay.tenants:
        raise TestbedError(
            f"{model.name} has tenants, whose ports lie in VRFs that Mininet has no notion of",
            hint="deploy it without --runtime mininet",
        )


def attach(name: str, *, state: StateDirectory | None = None, timeout_s: float = DEFAULT_TIMEOUT_S) -> LabNet:
    """A network of a lab that is deployed, with whatever runtime. `stop` lets go of it, and leaves it as it is.

    Raises `LabNotFound`, `DriverError` where a node is gone.
    """
    place = state or StateDirectory()
    running = RunningLab.open(name, place)
    _refuse_vrfs(running.model)
    net = LabNet(running.model, place, tag="mininet-cli", timeout_s=timeout_s)
    try:
        net.realise(running.plan.operations)
    except BaseException:
        net.release()
        raise
    return net
