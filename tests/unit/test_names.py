"""One word for one thing: a class has a name of its own, unless there is a reason that can be said in a line, and one
that is called as a word of the glossary is what the glossary says.

Names with an underscore are those of one module, which nobody else reads.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import testbed

PACKAGE = Path(testbed.__file__).parent
SAME_WORD = {
    "each transport has its own, as its specification calls it": {
        *("Access", "AccessRefused", "Ack", "MemoryRegion", "Nack", "Opcode", "Operation", "RemoteBuffer", "Request"),
        *("Controller", "Domain", "Endpoint", "Message", "Target"),
    },
    "a packet format has such parts in each protocol": {"Frame", "Layout", "Status", "Feature"},
    "the public API names what the model names: users hold one, and the code the other": {"Lab", "Node"},
    "the simulator has what the kernel has, with the same laws": {"LinkSettings"},
    "the schema of a file, a program or a record has what the thing itself has": {
        *("Backend", "Channel", "InferenceRequests", "Outcome", "ScaleUp"),
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
GLOSSARY = PACKAGE.parent / "docs/internals/glossary.md"
MEANT = {
    "Canary": {"run/machine/canary.py"},
    "Channel": {"endpoints/worker/program.py", "record/samples.py"},
    "Design": {"lab/core/fabric/designs.py"},
    "Drift": {"lab/core/deploy/changing/drift/lab_drift.py"},
    "Exercise": {"api/exercises/exercise.py"},
    "Expectation": {"run/schema/model.py"},
    "FailureDomain": {"lab/core/fabric/figures/failures.py"},
    "Fault": {"run/schema/model.py"},
    "HostShim": {"run/launch/shims.py"},
    "Journal": {"lab/core/deploy/records/journal.py"},
    "Lab": {"api/lab.py", "lab/core/model/lab.py"},
    "Plane": {"lab/features/infiniband/plane.py"},  # InfiniBand's own word: the management plane of a subnet
    "Point": {"run/sweep/points.py"},
    "Pool": {"api/pool/pool.py"},
    "Probe": {"lab/core/deploy/watch/probe.py"},
    "Program": {"endpoints/worker/program.py"},
    "Rail": {"lab/core/plan/rails.py"},
    "Record": {"record/record.py"},
    "Runtime": {"lab/core/deploy/runtime.py"},
    "ScaleUpDomain": {"lab/features/scale_up/sizing.py"},
    "Scenario": {"run/schema/model.py"},
    "Seat": {"api/pool/seat.py"},
    "Segment": {"lab/graph/grouping.py"},
    "Sweep": {"run/sweep/points.py"},
    "Tenant": {"lab/core/model/overlay.py", "workload/tenants.py"},
    "Transfer": {"workload/steps.py"},
    "Verdict": {"record/record.py"},
    "Worker": {"endpoints/worker/worker.py"},
}
"""The classes that are called as a word of the glossary, and where they are what it says."""


@cache
def classes() -> dict[str, set[str]]:
    """Return the modules of each public class, by its name."""
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(str(path.relative_to(PACKAGE)))
    return modules


def words() -> list[str]:
    """Return the words that the glossary explains."""
    return [
        word for line in re.findall(r"^(\w.*)\n  \S", GLOSSARY.read_text(), re.MULTILINE) for word in line.split(", ")
    ]


def test_a_class_has_a_name_of_its_own() -> None:
    modules = classes()
    allowed = set[str]().union(*SAME_WORD.values())
    assert {name: sorted(found) for name, found in modules.items() if len(found) > 1 and name not in allowed} == {}
    assert {name for name in allowed if len(modules.get(name, ())) < 2} == set(), "take these out"


def test_a_name_has_one_reason() -> None:
    assert sum(map(len, SAME_WORD.values())) == len(set[str]().union(*SAME_WORD.values()))


def test_a_class_that_is_called_as_a_word_of_the_glossary_is_what_that_says() -> None:
    names = {"".join(part[:1].upper() + part[1:] for part in re.split("[ -]", word)) for word in words()}
    assert {name: modules for name, modules in classes().items() if name in names} == MEANT


def test_every_word_of_the_glossary_is_explained_once_and_used() -> None:
    found = words()
    assert len(found) > 60
    assert sorted(found) == sorted(set(found))
    pages = [path for path in (*PACKAGE.rglob("*.py"), *GLOSSARY.parents[1].rglob("*.md")) if path != GLOSSARY]
    said = "\n".join(path.read_text() for path in pages).lower().replace("_", " ")
    assert [word for word in found if word.lower() not in said] == []
