"""Whatever comes in at a port of a subnet is forwarded, delivered, or counted; nothing ends the process."""

from random import Random

import pytest
from formula_subnets import fat_tree, hca
from saturated import FRAME_BYTES, Saturated, data_path, header
from virtual_domain import Closing

from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.data_path import Congestion

FRAMES = 3000


def hostile(random: Random, sound: bytes) -> tuple[bytes, int]:
    """A header and a length: noise, or a sound one with some bytes that are not."""
    if random.random() < 0.4:
        return random.randbytes(random.choice((0, 1, 7, 8, 19, 20, 60, 61, 300))), random.choice(
            (0, 1, 26, 4122, 1 << 31)
        )
    data = bytearray(sound)
    for _ in range(random.randrange(1, 4)):
        data[random.randrange(len(data))] = random.randrange(256)
    size = FRAME_BYTES if random.random() < 0.7 else random.randrange(1 << 16)
    return bytes(data), size


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("voq", [False, True])
def test_hostile_frames_never_crash(closing: Closing, seed: int, voq: bool) -> None:
    random = Random(seed)
    subnet = fat_tree(4, 2, 2)
    path = closing(data_path(subnet, voq=voq))
    path.set_partitions("leaf0", [0x8001, 0xFFFF], port=1)
    path.set_partitions(hca(1, 0), [0xFFFF])
    for switch in subnet.switches:
        path.set_congestion(switch.name, Congestion(threshold=15))
    places = [(node.name, port) for node in path.nodes for port in range(1, node.ports + 1)]
    names = [node.name for node in path.nodes if not node.is_switch]
    sound = header(subnet, hca(0, 0), hca(3, 1))
    fates: dict[int, int] = {}
    now = 0
    for token in range(FRAMES):
        now += random.randrange(200)
        data, size = hostile(random, sound)
        if random.random() < 0.7:
            node, port = random.choice(places)
            path.inject(node, port, data, size, token, now)
        else:
            path.offer(random.choice(names), data, size, token, now, management=random.random() < 0.1)
        if random.random() < 0.01:
            path.set_link(*random.choice(places), up=random.random() < 0.5)
        if random.random() < 0.01:
            path.set_forwarding(f"leaf{random.randrange(4)}", random.randbytes(random.randrange(20)))
        path.run(now, stops=False)
        for one in path.notices():
            if one.kind != binding.SENT:
                fates[one.token] = fates.get(one.token, 0) + 1
    for node, port in places:
        path.set_link(node, port, True)
    path.run(now + 10**9, stops=False)
    for one in path.notices():
        if one.kind != binding.SENT:
            fates[one.token] = fates.get(one.token, 0) + 1
    assert len(fates) + path.in_flight == FRAMES
    assert set(fates.values()) == {1}, "each frame has one fate"


def test_who_takes_no_credits_takes_none_of_others(closing: Closing) -> None:
    """Frames that come in without credits have what room there is, and those that have credits lose nothing by them."""
    subnet = fat_tree(2, 2, 1)
    path = closing(data_path(subnet))
    pair = (hca(0, 0), hca(1, 0))
    saturated = Saturated(path, subnet, [pair])
    saturated.run(20)
    strange = header(subnet, hca(0, 1), hca(1, 1))
    for token in range(10**6, 10**6 + 200):
        path.inject("leaf0", 2, strange, FRAME_BYTES, token, 20 * 83)
    dropped = sum(one.kind == binding.LOST for one in path.notices())
    assert 0 < dropped < 200
    found = saturated.run(400)
    assert found.lost["buffer_overruns"] == 0
    assert found.share(pair) > 0.9
