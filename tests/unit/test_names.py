"""One word for one thing: a class has a name of its own, unless there is a reason that can be said in a line.

Names with an underscore are those of one module, which nobody else reads.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import testbed

PACKAGE = Path(testbed.__file__).parent
SAME_WORD = {
    "each transport has its own, as its specification calls it": {
        *("Access", "AccessRefused", "Ack", "MemoryRegion", "Nack", "Opcode", "Operation", "RemoteBuffer", "Request"),
        *("Controller", "Domain", "Endpoint", "Message", "Target", "Transfer"),
    },
    "a packet format has such parts in each protocol": {"Frame", "Layout", "Status", "Feature"},
    "the public API names what the model names: users hold one, and the code the other": {"Lab", "Node"},
    "the simulator has what the kernel has, with the same laws": {
        "LinkSettings",
    },
    "the schema of a file, a program or a record has what the thing itself has": {
        *("Backend", "Channel", "InferenceRequests", "Outcome", "Program", "ScaleUp"),
        *("ScaleUpPlace", "Service", "Step", "Tenant", "Workload"),
    },
    "a fault or an error is named after what it does to a lab and what a program sees of it": {"LinkDown"},
    "a format of somebody else has such a word": {"Group"},
    "two processes that never meet, each with such a part": {
        *("Agent", "Depth", "Loop", "Place", "Protocol", "Rdma", "Steps"),
        "SwitchConfig",
    },
}
"""Names of classes in several modules, by the reason. A new one needs a better reason than these."""


def test_a_class_has_a_name_of_its_own() -> None:
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(str(path.relative_to(PACKAGE)))
    allowed = set[str]().union(*SAME_WORD.values())
    assert {name: sorted(found) for name, found in modules.items() if len(found) > 1 and name not in allowed} == {}
    assert {name for name in allowed if len(modules[name]) < 2} == set(), "take these out"


def test_a_name_has_one_reason() -> None:
    assert sum(map(len, SAME_WORD.values())) == len(set[str]().union(*SAME_WORD.values()))
