"""A storm of hostile datagrams against endpoints in every situation: nothing breaks, grows or is believed.

TESTBED_FUZZ_DATAGRAMS sets how many there are in all (30,000 by default; 1,000,000 in the test marked `soak`).
"""

import gc
import os
import sys
from random import Random

import pytest
from hostile_oracle import Oracle
from hostile_scenes import GUARD, KEY, SCENES, STEP_NS, Scene
from hostile_wire import Hostile
from wire_pair import JOB, run_together

from testbed.protocols.datagram import Incoming
from testbed.protocols.uet.delivery.states import PdcState
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import RemoteBuffer
from testbed.protocols.uet.packets.codes import Mode, ReturnCode

DATAGRAMS = int(os.environ.get("TESTBED_FUZZ_DATAGRAMS", "30000"))
SOAK_DATAGRAMS = int(os.environ.get("TESTBED_FUZZ_SOAK_DATAGRAMS", "1000000"))
PER_SCENE = 2500
BATCH = 50


def storm(scene: Scene, count: int) -> Oracle:
    """Throw `count` datagrams at both ends, and let them go on with each other, badly, in between."""
    random = scene.random
    oracle = Oracle(scene)
    talk = random.random() < 0.6
    for number in range(0, count, BATCH):
        fep = random.choice((scene.a, scene.b))
        datagrams = [scene.hostile.datagram(fep.address) for _ in range(min(BATCH, count - number))]
        oracle.expect(fep, datagrams)
        fep.receive(datagrams, scene.now)
        oracle.check()
        for sender in (scene.a, scene.b):
            for datagram in scene.take(sender, 400):
                if talk and datagram.remote in scene.memory and random.random() < 0.5:
                    to = scene.a if datagram.remote == scene.a.address else scene.b
                    arrived = [Incoming(sender.address, datagram.entropy, datagram.to_bytes())]
                    oracle.expect(to, arrived)
                    scene.give(datagram)
        oracle.check()
        scene.now += random.choice((0, 0, STEP_NS // 10, STEP_NS, 20 * STEP_NS))
        for sender in (scene.a, scene.b):
            timer = sender.next_timer()
            if timer is not None and timer <= scene.now:
                sender.handle_timer(scene.now)
    return oracle


def reachable(fep: Fep) -> tuple[int, int]:
    """Objects that this endpoint keeps alive, and their bytes."""
    seen: set[int] = set()
    stack: list[object] = [fep]
    size = 0
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, type) or callable(item) or type(item).__name__ == "module":
            continue
        seen.add(id(item))
        size += sys.getsizeof(item)
        stack.extend(gc.get_referents(item))
    return len(seen), size


def check_bounds(scene: Scene) -> None:
    for fep in (scene.a, scene.b):
        assert len(fep.pdcs) <= scene.a.config.max_pdcs
        objects, size = reachable(fep)
        assert objects < 30_000 and size < 8 << 20, (objects, size)
        assert len(fep.counters) < 150


def check_still_works(scene: Scene) -> None:
    """A peer whom nobody has disturbed, and then the two of the scene, on whatever PDCs they have left."""
    scene.settle()
    scene.pass_time(5_000 * STEP_NS)
    if not scene.secure:
        stranger = Fep("10.0.0.9", scene.a.config, Random(1), scene.now)
        end = stranger.endpoint(job_id=JOB)
        operation = end.write(scene.to_b, b"still works", RemoteBuffer(KEY), scene.now)
        everybody = (scene.a, scene.b, stranger)
        scene.now = run_together(everybody, operation, scene.now, step_ns=3 * STEP_NS)
        assert operation.ok, operation
        assert scene.memory[scene.b.address].shared[:11] == b"still works"
    for _ in range(3):
        operation = scene.ea.write(scene.to_b, b"as do we", RemoteBuffer(KEY), scene.now)
        scene.run(operation)
        if operation.ok:
            break
        assert operation.status is ReturnCode.UNDELIVERABLE, operation
    assert operation.ok, operation
    assert scene.memory[scene.b.address].shared[:8] == b"as do we"


def run(total: int, seed: int) -> None:
    random = Random(seed)
    names = list(SCENES)
    earlier: list[tuple[str, str, bytes]] = []
    done = 0
    number = 0
    per_scene = max(min(PER_SCENE, total // len(names)), 1)
    while done < total:
        name = names[number % len(names)]
        number += 1
        hostile = Hostile(random)
        hostile.remember(random.sample(earlier, min(len(earlier), 60)))
        scene = SCENES[name](random, hostile)
        oracle = storm(scene, min(per_scene, total - done))
        done += per_scene
        check_bounds(scene)
        oracle.check()
        check_still_works(scene)
        for buffer in scene.buffers:
            assert buffer[:GUARD] == bytes(GUARD) and buffer[-GUARD:] == bytes(GUARD)
        earlier = (earlier + hostile.captured())[-1000:]


def test_guesses_of_somebody_who_sees_nothing() -> None:
    """He has seen other connections of the same job, with the same keys, but no PDCID and PSN of this one."""
    random = Random(4794)
    elsewhere = Hostile(random)
    for name in ("established", "reads_pending", "rudi", "ack_wait"):
        storm(SCENES[name](random, elsewhere), 0)
    for mode in (Mode.RUD, Mode.ROD, Mode.RUDI):
        scene = Scene(random, Hostile(random))
        for established in (False, True):
            for size in (10, 3000):
                scene.operations += [
                    scene.ea.write(scene.to_b, bytes(size), RemoteBuffer(KEY), scene.now, mode=mode),
                    scene.ea.read(scene.to_b, scene.buffer(size), RemoteBuffer(KEY), scene.now, mode=mode),
                ]
            if not established:
                scene.run(*scene.operations)
                assert all(operation.ok for operation in scene.operations)
                scene.operations.clear()
        scene.take(scene.a)
        for _ in range(0, DATAGRAMS // 6, BATCH):
            scene.a.receive([elsewhere.datagram(scene.a.address) for _ in range(BATCH)], scene.now)
            scene.take(scene.a)
        assert all(operation.status is None for operation in scene.operations)
        (pdcs,) = {pdc.state for pdc in scene.a.pdcs if pdc.initiator} or {PdcState.ESTABLISHED}
        assert pdcs is PdcState.ESTABLISHED


def test_a_long_storm_at_the_same_two_grows_nothing() -> None:
    random = Random(4795)
    scene = SCENES["unexpected"](random, Hostile(random))
    storm(scene, DATAGRAMS // 10)
    before = [reachable(fep)[0] for fep in (scene.a, scene.b)]
    for _ in range(4):
        storm(scene, DATAGRAMS // 10)
    after = [reachable(fep)[0] for fep in (scene.a, scene.b)]
    # Five times as many datagrams; what there is more of are PDCs, up to their limit, of some 60 objects each.
    assert all(late < early + 64 * 80 for early, late in zip(before, after, strict=True)), (before, after)
    check_bounds(scene)
    check_still_works(scene)


def test_a_storm_in_every_situation() -> None:
    run(DATAGRAMS, 4793)


@pytest.mark.soak
def test_a_million_hostile_datagrams() -> None:
    run(SOAK_DATAGRAMS, int(os.environ.get("TESTBED_FUZZ_SEED", "1")))
