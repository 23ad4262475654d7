"""Labs of other tools, brought up here: what `import` writes routes packets, and so does what `export` writes.

A lab that is exported for containerlab is brought up from its file as containerlab does it: a namespace for each node,
a veth pair for each link, the commands of `exec`, and FRR with the configuration that the node sees.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from waiting import until

from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.drivers.routing.frr import FRR_USER
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.formats.containerlab_file import write_containerlab
from testbed.lab.formats.importing import import_topology

pytestmark = [pytest.mark.netns, pytest.mark.frr]

CORPUS = Path(__file__).parents[2] / "golden" / "imports"
ROUTES = [
    "clos-frr.clab",
    "all-links.clab",
    "leaf-spine.netlab",
    *(
        pytest.param(name, marks=pytest.mark.thorough)
        for name in ("ring.clab", "chain.clab", "five-stage.clab", "campus.netlab")
    ),
]


def imported(name: str, lab: str) -> Any:
    found = import_topology(
        (CORPUS / f"{name}.yml").read_text(), name, directory=CORPUS, runtime="netns", environment={}, name=lab
    )
    return load_topology_text(found.text, file=f"{name}.yml")


def addresses(lab: Any, node: str) -> list[str]:
    return [str(port.address.ip) for host in lab.plan.hosts if host.node == node for port in host.nics if port.address]


@pytest.mark.parametrize("name", ROUTES)
def test_an_imported_lab_comes_up_and_every_host_reaches_every_other(name: str, sandbox: Any) -> None:
    lab = sandbox.deploy(imported(name, sandbox.name())).lab
    failed = [result for result in check_lab(lab).results if result.status is CheckStatus.FAIL]
    assert not failed
    hosts = [node.name for node in lab.model.hosts]
    assert len(hosts) >= 2
    for source in hosts:
        for target in hosts:
            for address in addresses(lab, target) if target != source else ():
                done = lab.run(source, ["ping", "-n", "-c", "1", "-W", "2", address])
                assert done.returncode == 0, (source, target, address, done.stdout)


def test_commands_of_the_file_have_run(sandbox: Any) -> None:
    lab = sandbox.deploy(imported("all-links.clab", sandbox.name())).lab
    shown = lab.run("h1", ["ip", "-o", "link", "show", "dummy0"]).stdout
    assert "mtu 1400" in shown and "state UP" in shown


class Exported:
    """A lab of an exported file, brought up without testbed."""

    def __init__(self, document: Any, folder: Path, prefix: str) -> None:
        self.nodes = document["topology"]["nodes"]
        self.links = document["topology"]["links"]
        self.folder = folder
        self.prefix = prefix
        self.daemons: list[subprocess.Popen[bytes]] = []

    def namespace(self, node: str) -> str:
        return f"{self.prefix}-{node}"

    def up(self) -> None:
        for node in self.nodes:
            _run("ip", "netns", "add", self.namespace(node))
            _run("ip", "-n", self.namespace(node), "link", "set", "lo", "up")
        for link in self.links:
            (a, port_a), (b, port_b) = (end.split(":") for end in link["endpoints"])
            ends = ("netns", self.namespace(a), "type", "veth", "peer", "name", port_b, "netns", self.namespace(b))
            _run("ip", "link", "add", port_a, *ends)
            for node, port in ((a, port_a), (b, port_b)):
                _run("ip", "-n", self.namespace(node), "link", "set", port, "up")
        for node, settings in self.nodes.items():
            seen = {bind.split(":")[1]: self.folder / bind.split(":")[0] for bind in settings.get("binds", ())}
            for command in settings.get("exec", ()):
                words = [str(seen.get(word, word)) for word in command.split()]
                self.run(node, words)
            if "/etc/frr/frr.conf" in seen:
                self._route(node, seen["/etc/frr/frr.conf"])

    def _route(self, node: str, configuration: Path) -> None:
        """Start FRR as watchfrr does, and hand it its whole configuration."""
        frr = find_frr()
        run = self.folder / "run" / node
        run.mkdir(parents=True)
        shutil.chown(run, FRR_USER, FRR_USER)
        text = "".join(
            line for line in configuration.read_text().splitlines(keepends=True) if not line.startswith("log file")
        )
        (run / "frr.conf").write_text(text)
        (run / "vtysh.conf").write_text("")
        names = [name for name in ("mgmtd", "zebra", "bfdd", "bgpd") if (frr.directory / name).exists()]
        for name in names:
            argv = [str(frr.directory / name), "--vty_socket", str(run), "-i", str(run / f"{name}.pid"), "-z"]
            argv += [str(run / "zserv.api"), "-A", "127.0.0.1", "-P", "0", "-u", FRR_USER, "-g", FRR_USER]
            self.daemons.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", self.namespace(node), *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            until(lambda name=name: (run / f"{name}.vty").exists(), f"{name} of {node} listens", 10)
        done = self.run(
            node, ["vtysh", "--vty_socket", str(run), "--config_dir", str(run), "-f", str(run / "frr.conf")]
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, node: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace(node), *argv], capture_output=True, text=True, check=False
        )

    def down(self) -> None:
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        for node in self.nodes:
            subprocess.run(["ip", "netns", "del", self.namespace(node)], check=False, capture_output=True)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that FRR's user may reach, too."""
    with TemporaryDirectory(prefix="testbed-exported-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


FABRIC = """name: {name}
fabric: {{design: rail-optimized, segments: 2, hosts: 1, gpus: 2, spines: 2, routing: {{bfd: off}}}}
"""
WRITTEN = """name: {name}
fabric: {{routing: {{bfd: off}}}}
topology:
  nodes:
    leaf1: {{kind: switch, role: leaf}}
    leaf2: {{kind: switch, role: leaf}}
    spine1: {{kind: switch, role: spine}}
    h1: {{kind: host}}
    h2: {{kind: host}}
  links:
    - endpoints: ["leaf1:eth1", "spine1:eth1"]
    - endpoints: ["leaf2:eth1", "spine1:eth2"]
    - {{endpoints: ["h1:eth1", "leaf1:eth2"], prefix: 192.0.2.0/31}}
    - endpoints: ["h2:eth1", "leaf2:eth2"]
"""


@pytest.mark.parametrize("text", [FABRIC, WRITTEN], ids=["fabric", "hand-written"])
def test_an_exported_lab_routes_without_testbed(text: str, sandbox: Any, folder: Path) -> None:
    from testbed.lab.core.plan.lab import plan_lab

    lab = load_topology_text(text.format(name=sandbox.name()), file="x.yml")
    exported = write_containerlab(lab, beside="x-files")
    for path, content in exported.files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    theirs = Exported(yaml.safe_load(exported.text), folder, f"{lab.name}x")
    plan = plan_lab(lab, k=1)
    try:
        theirs.up()
        first, *others = plan.hosts
        for host in others:
            for port in host.nics:
                source = next(nic for nic in first.nics if nic.rail == port.rail)
                ping = ["ping", "-n", "-c", "1", "-W", "1", "-I", str(source.address.ip), str(port.address.ip)]
                until(lambda ping=ping: theirs.run(first.node, ping).returncode == 0, " ".join(ping), 60)
    finally:
        theirs.down()
