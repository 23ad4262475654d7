"""The tree of pauses: from what holds the packets outwards to those who are stopped for it."""

from testbed.api.console.views.pauses import Branch, Pause, build_tree


def pause(paused: str, by: str, *, share: float = 0.5, storm: bool = False) -> Pause:
    return Pause(paused=paused, by=by, share=share, now=True, storm=storm)


def shape(branch: Branch) -> object:
    """A branch in short: its node, whom it pauses, and the branches below."""
    return branch.node, [one.paused for one in branch.pauses], [shape(below) for below in branch.branches]


def test_congestion_is_drawn_from_its_root_outwards() -> None:
    """Of an incast at h3, the leaf of the receiver pauses the spine, which pauses the leaf of the senders, which pauses
    them: the root is the leaf whose queue does not drain."""
    pauses = [
        pause("leaf1:up1", "spine1:down1"),
        pause("spine1:down2", "leaf2:up1"),
        pause("h1:nic", "leaf1:down1", share=0.9),
        pause("h2:nic", "leaf1:down2", share=0.2),
    ]
    (tree,) = build_tree(pauses, {"leaf2:down3": 400_000, "leaf2:up1": 10, "spine1:down2": 90_000})
    assert shape(tree) == (
        "leaf2",
        ["spine1:down2"],
        [("spine1", ["leaf1:up1"], [("leaf1", ["h1:nic", "h2:nic"], [])])],
    )
    assert (tree.cause, tree.queue, tree.queue_bytes) == ("queue", "leaf2:down3", 400_000)
    assert [below.cause for below in tree.branches] == ["pause"]


def test_a_storm_is_a_root_though_its_port_may_be_paused_too() -> None:
    passed_on = [pause("spine1:down1", "leaf1:up1"), pause("h1:nic", "leaf1:down1")]
    pauses = [pause("leaf1:down1", "h1:nic", storm=True), *passed_on]
    storm, *others = build_tree(pauses, {})
    assert (storm.node, storm.cause) == ("h1", "storm")
    assert shape(storm)[2] == [("leaf1", ["h1:nic", "spine1:down1"], [])]  # type: ignore[index]
    assert others == []


def test_several_roots_are_several_trees_the_larger_first() -> None:
    pauses = [pause("a:1", "x:1"), pause("b:1", "y:1"), pause("c:1", "y:2")]
    assert [tree.node for tree in build_tree(pauses, {})] == ["y", "x"]


def test_a_circle_of_pauses_has_the_node_with_the_deepest_queue_for_a_root() -> None:
    """A deadlock of lossless classes: each waits for the next, and none is stopped by nobody."""
    pauses = [pause("a:1", "b:1"), pause("b:2", "c:1"), pause("c:2", "a:2")]
    (tree,) = build_tree(pauses, {"a:3": 10, "b:3": 999, "c:3": 20})
    assert tree.node == "b"
    assert shape(tree) == ("b", ["a:1"], [("a", ["c:2"], [("c", ["b:2"], [])])])


def test_nobody_pauses_anybody() -> None:
    assert build_tree([], {"a:1": 5}) == []
