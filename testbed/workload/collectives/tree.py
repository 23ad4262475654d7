"""The double binary tree: two trees, each over all ranks and for half of the data, as NCCL builds them.

Every rank is a leaf of one tree and inside the other (but rank 0, inside both where n is odd), so that both halves
together keep all links busy. Source: Sanders, Speck and Traff, "Two-tree algorithms for full bandwidth broadcast,
reduction and scan", Parallel Computing 35, 2009; NCCL, src/graph/trees.cc (`ncclGetBtree`, `ncclGetDtree`).
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.workload.collectives.group import Group
from testbed.workload.steps import Combine, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryTree:
    """`parents[i]` of index i, -1 for the root; `children[i]` at most two."""

    parents: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]

    @property
    def root(self) -> int:
        return self.parents.index(-1)

    def from_root(self) -> list[int]:
        """Yield all indices, each after its parent."""
        order = [self.root]
        for index in order:
            order.extend(self.children[index])
        return order


def binary_tree(size: int) -> BinaryTree:
    """NCCL's binary tree: root 0, odd ranks are leaves, ranks with more trailing zero bits stand higher."""
    return _tree_of_parents([_parent(index, size) for index in range(size)])


def double_binary_tree(size: int) -> tuple[BinaryTree, BinaryTree]:
    """The tree, and its mirror image where `size` is even, or the tree moved on by one rank where it is odd."""
    first = binary_tree(size)
    parents = [-1] * size
    for index, parent in enumerate(first.parents):
        moved = _moved(index, size)
        parents[moved] = -1 if parent == -1 else _moved(parent, size)
    return first, _tree_of_parents(parents)


def tree_all_reduce(group: Group, array: Slice) -> None:
    """Send up both trees adding, then down copying, by chunks: 2 (n - 1) / n of the array per rank on average."""
    trees = double_binary_tree(group.size)
    halves = [half.split(group.chunks) for half in array.split(2)]
    for chunk in range(group.chunks):
        for number, tree in enumerate(trees):
            piece = halves[number][chunk]
            complete = _reduce(group, tree, piece, lane=f"tree{number}", chunk=chunk)
            _broadcast(group, tree, piece, complete, lane=f"tree{number}", chunk=chunk)


def _reduce(group: Group, tree: BinaryTree, piece: Slice, *, lane: str, chunk: int) -> tuple[int, ...]:
    """Returns the steps after which the root has the sum."""
    received: dict[int, tuple[int, ...]] = {}
    for index in reversed(tree.from_root()):
        parent = tree.parents[index]
        if parent >= 0:
            received[parent] = received.get(parent, ()) + group.send(
                index,
                parent,
                piece,
                after=received.get(index, ()),
                combine=Combine.REDUCE,
                what=f"{lane}.reduce.{chunk}",
                lane=lane,
            )
    return received.get(tree.root, ())


def _broadcast(
    group: Group, tree: BinaryTree, piece: Slice, complete: tuple[int, ...], *, lane: str, chunk: int
) -> None:
    received = {tree.root: complete}
    for index in tree.from_root():
        for child in tree.children[index]:
            what = f"{lane}.broadcast.{chunk}"
            received[child] = group.send(index, child, piece, after=received[index], what=what, lane=lane)


def _parent(index: int, size: int) -> int:
    if index == 0:
        return -1
    lowest = index & -index
    up = (index ^ lowest) | (lowest << 1)
    return up if up < size else index ^ lowest


def _moved(index: int, size: int) -> int:
    return (index + 1) % size if size % 2 else size - 1 - index


def _tree_of_parents(parents: list[int]) -> BinaryTree:
    children: list[list[int]] = [[] for _ in parents]
    for index, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(index)
    return BinaryTree(parents=tuple(parents), children=tuple(map(tuple, children)))
