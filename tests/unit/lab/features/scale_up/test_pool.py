"""Memory devices of scale-up domains: as a file has them, as they are planned, and by the names of their links."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import FabricError
from testbed.base.units import ByteCount, Duration, Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import SCALE_UP_PRESETS, DomainSpan, Lab, ScaleUpBy, ScaleUpPool
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.features.scale_up.apply import gpu_settings, switch_description
from testbed.lab.features.scale_up.host_gpus import host_gpus
from testbed.lab.features.scale_up.links import NoSuchScaleUpLink, ScaleUpLink, find_links, list_links
from testbed.lab.features.scale_up.schema import MemoryPoolSpec, ScaleUpSpec, resolve_scale_up
from testbed.lab.features.scale_up.sizing import check_scale_up
from testbed.lab.features.scale_up.view import scale_up_document, scale_up_rows
from testbed.protocols.scale_up.domain.endpoint import Gpu

K = 20_000
POOL = ScaleUpPool(devices=4, ways=2, rate=Rate.parse("512G"), interleave=ByteCount(1024))
RACK = replace(SCALE_UP_PRESETS["h100"], by=ScaleUpBy.PACKETS, domain=DomainSpan.SEGMENT, pool=POOL, switch_ports=None)


def lab_of(**changes: Any) -> Lab:
    made = generate_fabric(FabricParams(design="rail-optimized", segments=2, hosts=2, gpus=3, spines=1), name="lab")
    return replace(made, scale_up=replace(RACK, **changes))


def spec(**keys: Any) -> ScaleUpSpec:
    return ScaleUpSpec.model_validate({"preset": "h100", "by": "packets", **keys})


def test_what_a_file_leaves_out_is_a_cxl_2_expander_interleaved_over_all() -> None:
    found, errors = resolve_scale_up(spec(pool={"devices": 4}))
    assert not errors
    assert found.pool == ScaleUpPool(
        devices=4,
        ways=4,
        capacity=ByteCount(10**12),
        rate=Rate.parse("512G"),
        latency=Duration(250),
        interleave=ByteCount(256),
    )
    written = {"devices": 6, "ways": 3, "capacity": "64GB", "rate": "100G", "latency": "1us", "interleave": "4096B"}
    found, errors = resolve_scale_up(spec(pool=written))
    assert not errors and found.pool is not None
    assert (found.pool.regions, found.pool.latency, found.pool.interleave.bytes) == (2, Duration(1000), 4096)
    assert resolve_scale_up(spec())[0].pool is None


@pytest.mark.parametrize(
    ("keys", "field", "words"),
    [
        ({"by": "time"}, "scale_up.pool", "are frames, and this domain has none"),
        ({"pool": {"devices": 4, "ways": 3}}, "scale_up.pool.ways", "4 devices are no whole regions of 3"),
        ({"pool": {"devices": 1, "ways": 2}}, "scale_up.pool.ways", "1 device are no whole regions of 2"),
    ],
)
def test_what_cannot_be_is_named(keys: dict[str, Any], field: str, words: str) -> None:
    _, [error] = resolve_scale_up(spec(**{"pool": {"devices": 4}, **keys}))
    assert (error.field, error.code) == (field, "contradiction") and words in error.message and error.hint


def test_the_keys_are_those_of_the_model() -> None:
    assert set(MemoryPoolSpec.model_fields) == set(ScaleUpPool.__dataclass_fields__)


def codes(errors: Iterable[FabricError]) -> list[tuple[str, str]]:
    return [(error.code, error.field) for error in errors]


def test_devices_take_ports_and_numbers_as_gpus_do() -> None:
    assert codes(check_scale_up(lab_of())) == []
    shares, gpus = max(RACK.shares), 6
    assert codes(check_scale_up(lab_of(switch_ports=shares * (gpus + 4)))) == []
    [error] = check_scale_up(lab_of(switch_ports=shares * (gpus + 4) - 1))
    assert error.code == "scale-up-domain" and "6 GPUs and 4 memory devices with 5 links each" in error.message
    many = replace(POOL, devices=1018)
    assert codes(check_scale_up(lab_of(pool=many))) == [("scale-up-packets", "scale_up.pool.devices")]
    assert codes(check_scale_up(lab_of(pool=replace(POOL, devices=1016)))) == []


def test_devices_are_the_last_ends_of_each_domain_and_their_first_host_has_their_wires() -> None:
    plan = plan_lab(lab_of(), k=K)
    for number, domain in enumerate(plan.scale_up_domains, start=1):
        assert (domain.gpus, domain.ends) == (6, 10)
        memory = [wire for wire in domain.wires if wire.memory]
        assert {wire.host for wire in memory} == {f"p1-s{number}-h1"}
        first = memory[:4]
        assert [(wire.gpu, wire.local_gpu, wire.interface) for wire in first] == [
            (6 + one, 4 + one, f"mem{1 + one}p1") for one in range(4)
        ]
        assert [wire.gpu for wire in domain.wires] == 4 * list(range(10)), "as a switch counts its ports"
        assert len({(wire.host, wire.ifindex) for wire in domain.wires}) == len(domain.wires)
        description = switch_description(plan, domain)
        assert description.gpus == 10 and len(description.ports) == 40


def test_a_device_serves_at_its_rate_and_latency_in_lab_units() -> None:
    plan = plan_lab(lab_of(), k=K)
    device: Gpu = gpu_settings(plan, "p1-s1-h1", 4)
    assert (device.gpu, device.gpus) == (6, 10)
    assert (device.memory_bps, device.memory_ns) == (512 * 10**9 // K, 250 * K)
    gpu = gpu_settings(plan, "p1-s1-h1", 3)
    assert (gpu.gpu, gpu.gpus, gpu.memory_bps, gpu.memory_ns) == (2, 10, 0, 0)
    [domain, _] = plan.scale_up_domains
    assert domain.pool is not None and domain.pool.granule.bytes == 1024 * RACK.coarse


def test_memory_is_no_gpu_of_its_host() -> None:
    told = dict(host_gpus(plan_lab(lab_of(), k=K), Path("lib.so"), Path("/run")))
    assert {host: len(one.gpus) for host, one in told.items()} == dict.fromkeys(told, 3)


def names(links: Iterable[ScaleUpLink]) -> list[str]:
    return [link.name for link in links]


def test_links_by_name() -> None:
    lab = lab_of()
    assert names(find_links(lab, "p1-s2-h1.mem3:plane2")) == ["p1-s2-h1.mem3:plane2"]
    assert names(find_links(lab, "p1-s2-h1:mem3p2")) == ["p1-s2-h1.mem3:plane2"]
    assert len(find_links(lab, "p1-s1-h1.mem1:planes")) == 4
    assert len(find_links(lab, "p1-s1-h1:planes")) == 3 * 4, "a tray's GPUs"
    chip = find_links(lab, "p1-s1:plane3")
    assert len(chip) == 10 and sum(bool(link.memory) for link in chip) == 4
    assert [link.gpu for link in list_links(lab)] == 8 * list(range(10))
    with pytest.raises(NoSuchScaleUpLink, match="p1-s1-h1 has no memory device 5") as caught:
        find_links(lab, "p1-s1-h1.mem5:plane1")
    assert caught.value.hint == "its memory devices are 1 to 4"
    with pytest.raises(NoSuchScaleUpLink) as caught:
        find_links(lab_of(pool=None), "p1-s1-h1.mem1:plane1")
    assert "fabric.scale_up.pool" in str(caught.value.hint)
    with pytest.raises(NoSuchScaleUpLink, match="has no GPU 4"):
        find_links(lab, "p1-s1-h1.gpu4:plane1")


def test_the_view_says_what_a_region_has() -> None:
    rows = {row.what: row for row in scale_up_rows(lab_of(), K)}
    assert rows["memory devices of a domain"].note == "2 regions of 2 ways; 1 TB each, 2 TB a region: an account"
    assert (rows["rate of a region"].real, rows["rate of a region"].lab) == ("1.024 Tbit/s", "51.2 Mbit/s")
    assert "1.25 us" in rows["latency of a device"].note
    assert (rows["interleave"].real, rows["interleave"].lab) == ("1.024 kB", "16.384 kB")
    document = scale_up_document(lab_of(), None)["pool"]
    assert document["regions"] == 2 and document["lab_units"] is None
    assert scale_up_document(lab_of(pool=None), K)["pool"] is None
    assert "interleave" not in {row.what for row in scale_up_rows(lab_of(pool=None), K)}
