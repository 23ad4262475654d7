"""Files of containerlab, a key at a time: what becomes of it, or what is said about it."""

from pathlib import Path

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.model import Lab, Role
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.formats.imported import Remark
from testbed.lab.formats.importing import import_topology

LAB = """name: lab
topology:
  nodes:
    leaf1: {{kind: nokia_srlinux}}
    h1: {{kind: linux, image: "alpine:3"{more}}}
  links:
    - {{endpoints: ["leaf1:eth1", "h1:eth1"]{link}}}
"""


def read(text: str, *, runtime: str = "docker", **environment: str) -> tuple[Lab, list[Remark]]:
    found = import_topology(text, "x.clab.yml", directory=Path("/srv"), runtime=runtime, environment=environment)
    return load_topology_text(found.text, file="ours.yml"), list(found.remarks)


def host(more: str = "", *, runtime: str = "docker", **environment: str) -> tuple[Lab, list[Remark]]:
    return read(LAB.format(more=more and f", {more}", link=""), runtime=runtime, **environment)


def test_an_image_is_kept_as_a_container() -> None:
    lab, remarks = host()
    container = lab.node("h1").container
    assert container is not None and container.image == "alpine:3"
    assert [row.what for row in remarks] == ["kind: nokia_srlinux"]


def test_an_image_is_left_out_for_a_namespace_and_said_so() -> None:
    lab, remarks = host(runtime="netns")
    assert lab.node("h1").container is None
    assert ("image", "h1", "left out") in [(row.what, row.where, row.became) for row in remarks]


def test_a_system_of_a_vendor_becomes_a_switch_of_frr() -> None:
    lab, remarks = host()
    assert lab.node("leaf1").role is Role.LEAF and lab.node("leaf1").container is None
    assert remarks[0].line == 4
    assert "FRR" in remarks[0].to_do


@pytest.mark.parametrize(
    ("image", "runtime", "role"),
    [
        ("quay.io/frrouting/frr:10.2.1", "docker", Role.LEAF),
        ("frrouting/frr", "docker", Role.LEAF),
        ("my/bird:2", None, Role.LEAF),
        ("nginx:1", "docker", None),
        ("registry.example:5000/tools/afrro:1", "docker", None),
    ],
)
def test_a_linux_container_routes_where_its_image_does(image: str, runtime: str | None, role: Role | None) -> None:
    text = f"""name: lab
topology:
  nodes:
    x: {{kind: linux, image: "{image}"}}
    h1: {{kind: linux}}
  links: [{{endpoints: ["x:eth1", "h1:eth1"]}}]
"""
    lab, _ = read(text)
    node = lab.node("x")
    assert node.role is role
    assert (node.container.runtime if node.container else None) == runtime


@pytest.mark.parametrize(
    ("name", "group", "is_host"),
    [
        ("gpu-01", "", True),
        ("n1", "GPU Servers", True),
        ("client1", "", True),
        ("gpu-leaf1", "", False),
        ("r1", "", False),
    ],
)
def test_a_server_that_runs_a_router_is_a_host(name: str, group: str, is_host: bool) -> None:
    text = f"""name: lab
topology:
  nodes:
    {name}: {{kind: linux, image: "quay.io/frrouting/frr:10.1.3", group: "{group}"}}
    tor1: {{kind: nokia_srlinux}}
  links: [{{endpoints: ["{name}:eth1", "tor1:e1-1"]}}]
"""
    lab, _ = read(text)
    assert (lab.node(name).role is None) is is_host
    assert lab.node(name).container is not None


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ('binds: ["conf:/conf:ro"]', ("/srv/conf", "/conf", True)),
        ('binds: ["/abs:/conf"]', ("/abs", "/conf", False)),
        ('binds: ["../up:/conf:rw"]', ("/up", "/conf", False)),
        ('binds: ["__clabNodeDir__/x:/conf"]', ("/srv/clab-lab/h1/x", "/conf", False)),
        ('binds: ["__clabDir__/x:/conf"]', ("/srv/clab-lab/x", "/conf", False)),
    ],
)
def test_binds_have_whole_paths(key: str, found: tuple[str, str, bool]) -> None:
    lab, _ = host(key)
    container = lab.node("h1").container
    assert container is not None
    assert [(bind.source, bind.target, bind.read_only) for bind in container.binds] == [found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("memory: 512mb", 512 << 20),
        ("memory: 1Gb", 1 << 30),
        ("memory: 100m", 100 << 20),
        ("memory: 1.5g", 3 << 29),
        ('memory: "268435456"', 1 << 28),
    ],
)
def test_memory_is_counted_as_docker_does(text: str, value: int) -> None:
    lab, _ = host(text)
    container = lab.node("h1").container
    assert container is not None and container.memory_bytes == value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("${RELEASE:=3.20}", "alpine:3.20"),
        ("${SET}", "alpine:7"),
        ("$SET", "alpine:7"),
        ("${SET:-8}", "alpine:7"),
        ("${EMPTY:-8}", "alpine:8"),
        ("${SET:+9}", "alpine:9"),
    ],
)
def test_variables_are_replaced_as_a_shell_does(text: str, found: str) -> None:
    lab, _ = read(LAB.format(more="", link="").replace("alpine:3", f"alpine:{text}"), SET="7", EMPTY="")
    container = lab.node("h1").container
    assert container is not None and container.image == found


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("ip addr add 192.0.2.9/31 dev eth1", ()),
        ("ip -6 a a 2001:db8::1/64 dev eth1", ()),
        ("ip route replace default via 192.0.2.8", ()),
        ("ip link set eth1 up", ()),
        ("/sbin/ifconfig eth1 up", ()),
        ("bash -c 'ip addr add 192.0.2.9/31 dev eth1; ip r a default via 192.0.2.8'", ()),
        ("sh -c 'ip link set dev eth1 up && echo ready'", ("sh", "-c", "echo ready")),
        ("ip link add br0 type bridge", ("ip", "link", "add", "br0", "type", "bridge")),
        ("ip route show", ("ip", "route", "show")),
        ("iperf3 -s -D", ("iperf3", "-s", "-D")),
    ],
)
def test_commands_that_would_undo_the_plan_are_left_out(command: str, kept: tuple[str, ...]) -> None:
    lab, remarks = host(f'exec: ["{command}"]')
    assert lab.node("h1").exec == ((kept,) if kept else ())
    assert any(row.what.startswith("exec of") for row in remarks) == (kept != tuple(command.split()) or not kept)


def test_a_script_that_is_bound_runs_where_this_machine_has_it() -> None:
    lab, _ = host('binds: ["scripts:/config:ro"], exec: ["bash /config/up.sh 1"]', runtime="netns")
    assert lab.node("h1").exec == (("bash", "/srv/scripts/up.sh", "1"),)
    lab, _ = host('binds: ["scripts:/config:ro"], exec: ["bash /config/up.sh 1"]')
    assert lab.node("h1").exec == (("bash", "/config/up.sh", "1"),)


def test_a_prefix_that_a_command_speaks_of_is_the_links() -> None:
    lab, remarks = host('exec: ["ip addr add 192.0.2.9/29 dev eth1"]')
    assert str(lab.links[0].prefix) == "192.0.2.8/29"
    assert [row.became for row in remarks if row.what == "address of a port"] == ["changed"]
    lab, remarks = host('exec: ["ip addr add 10.1.2.3/24 dev eth1"]')
    assert lab.links[0].prefix is None
    assert any("10.1.2.0/24 is kept for the lab's rails" in row.to_do for row in remarks)


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("ports: ['80:80']", "ports"),
        ("startup-delay: 5", "startup-delay"),
        ("network-mode: host", "network-mode"),
        ("some-new-key: 1", "some-new-key: 1"),
        ("binds: [/volume]", "binds: /volume"),
        ("binds: ['/x:/proc']", "binds: /x:/proc"),
        ("cap-add: [ALL]", "cap-add"),
        ("sysctls: {kernel.panic: 1}", "sysctls.kernel.panic: 1"),
        ("labels: {pod: 7}", "labels.pod: 7"),
        ("env: {'a-b': c}", "env.a-b: c"),
        ("image: 'Not An Image'", "image"),
    ],
)
def test_what_cannot_be_is_a_remark_with_its_line_and_what_to_do(key: str, what: str) -> None:
    if key.startswith("image"):
        _, remarks = read(LAB.format(more="", link="").replace('image: "alpine:3"', key))
    else:
        _, remarks = host(key)
    row = next(row for row in remarks if row.what == what)
    assert (row.where, row.became, row.line) == ("h1", "left out", 5)
    assert row.to_do


@pytest.mark.parametrize("mode", ["none"])
def test_what_is_so_here_anyway_is_no_remark(mode: str) -> None:
    _, remarks = host(f"network-mode: {mode}, runtime: docker")
    assert [row.what for row in remarks] == ["kind: nokia_srlinux"]


def test_aliases_cannot_make_a_small_file_large() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    with pytest.raises(SpecError, match="too-big"):
        read(bomb + LAB.format(more="", link=""))


def test_an_anchor_that_holds_itself_is_refused() -> None:
    with pytest.raises(SpecError, match="alias"):
        read("a: &a [*a]\n" + LAB.format(more="", link=""))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nfabric: {design: single-switch}\n", "a topology of testbed"),
        ("name: x\nworkload: {kind: x}\ntopology: {file: y.yml}\n", "a scenario"),
        ("a: 1\n", "no topology of containerlab"),
        ("name: x\ntopology:\n  nodes: {a: {kind: linux}}\n", "no two nodes"),
        ("name: x\ntopology:\n  nodes:\n{{ range . }}\n    a: [\n", "a template of Go"),
    ],
)
def test_what_is_nothing_to_import_is_told(text: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        read(text)
    assert said in str(refused.value)


def test_names_that_clash_here_are_told_apart() -> None:
    text = """name: lab
topology:
  nodes: {Leaf_1: {kind: ceos}, leaf-1: {kind: ceos}, Spine: {kind: ceos}}
  links:
    - endpoints: ["Leaf_1:Eth1", "Spine:Eth1"]
    - endpoints: ["leaf-1:Eth1", "Spine:eth1"]
"""
    lab, remarks = read(text)
    assert [node.name for node in lab.nodes] == ["leaf-1", "leaf-1-2", "spine"]
    spine = {end.interface for link in lab.links for end in (link.a, link.b) if end.node == "spine"}
    assert len(spine) == 2
    assert {row.what for row in remarks} >= {"names of nodes", "names of ports"}
