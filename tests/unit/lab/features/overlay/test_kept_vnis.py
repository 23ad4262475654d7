"""VNIs of a lab that is up: a changed file that names none keeps them, by the names of tenants and subnets."""

from testbed.lab.core.model import End, Lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.overlay.kept_vnis import keep_vnis

FABRIC = (
    "name: x\nfabric: {design: rail-optimized, segments: 1, hosts: 6, gpus: 1, spines: 1, overlay: evpn}\ntenants:\n"
)
RED = '  red: {subnets: {web: {prefix: 172.31.0.0/24, nics: ["p1-s1-h1:rail1"]}}}\n'
BLUE = """\
  blue:
    external: {leaf: p1-s1-rail1, asn: 64999, prefixes: [198.51.100.0/24], rate: 10G}
    subnets: {web: {prefix: 172.31.0.0/24, nics: ["p1-s1-h2:rail1"]}}
"""
GREEN = '  green: {subnets: {web: {prefix: 172.31.0.0/24, nics: ["p1-s1-h3:rail1"]}}}\n'


def lab_of(*tenants: str) -> Lab:
    return load_topology_text(FABRIC + "".join(tenants), file="x.yml")


def vnis(lab: Lab) -> dict[str, tuple[int, int]]:
    assert lab.overlay is not None
    return {tenant.name: (tenant.vni, tenant.subnets[0].vni) for tenant in lab.overlay.tenants}


def test_a_tenant_that_goes_renumbers_none_that_stays() -> None:
    before = lab_of(RED, BLUE)
    alone = lab_of(BLUE)
    kept = keep_vnis(before, alone)
    assert vnis(alone) != vnis(kept) == {"blue": vnis(before)["blue"]}
    (blue,) = kept.overlay.tenants
    assert blue.imports == blue.exports == (f"65000:{blue.vni}",)


def test_the_port_of_a_router_outside_is_called_after_the_vni_that_is_kept() -> None:
    before = lab_of(RED, BLUE)
    kept = keep_vnis(before, lab_of(BLUE))
    (blue,) = kept.overlay.tenants
    port = End(node="p1-s1-rail1", interface=f"ext{blue.vni}")
    assert blue.external is not None and blue.external.port == port
    assert [link.b for link in kept.links if link.a.node == "blue-external"] == [port]


def test_a_new_tenant_takes_what_nobody_has() -> None:
    before = lab_of(RED, BLUE)
    kept = vnis(keep_vnis(before, lab_of(GREEN, BLUE)))
    assert kept["blue"] == vnis(before)["blue"]
    assert len({number for numbers in kept.values() for number in numbers}) == 4
    assert kept["green"] == vnis(before)["red"], "the first of a file: red is gone"


def test_what_a_file_names_comes_first() -> None:
    before = lab_of(RED, BLUE)
    taken = vnis(before)["blue"][0]
    kept = vnis(keep_vnis(before, lab_of(GREEN.replace("subnets:", f"vni: {taken}, subnets:", 1), BLUE)))
    assert kept["green"][0] == taken
    assert kept["blue"][0] != taken


def test_the_same_file_is_as_it_was() -> None:
    before = lab_of(RED, BLUE)
    assert keep_vnis(before, lab_of(RED, BLUE)) == before
