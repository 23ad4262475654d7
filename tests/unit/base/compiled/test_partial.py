"""Partial builds: which modules are left out when one has changed, and that the others are taken over as they are."""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from testbed.base.compiled import build as builder
from testbed.base.compiled import modules
from testbed.base.compiled.build import BuildError, build
from testbed.base.compiled.finder import GROUP, PURE, find_build, left_out_of
from testbed.base.compiled.imports import Imports
from testbed.base.compiled.manifest import BuiltModule, Manifest, native_needs, read_manifest
from testbed.base.compiled.partial import MOST_LEFT_OUT, Partial, find_partial, modules_to_leave_out, take_over
from testbed.base.files import CHECKOUT
from testbed.protocols.congestion.registry import CONTROLLERS as FLOW_CONTROLLERS
from testbed.protocols.uet.congestion.registry import CONTROLLERS

PACKAGE = "testbed.protocols.congestion"
OPEN = "from testbed.protocols.open_classes import mypyc_attr\n"
CONTROL = "from testbed.protocols.congestion.control import Control"
SOURCES = {
    "__init__": "",
    "limits": """
from typing import Final
MOST: Final = 3
""",
    "control": """
from testbed.protocols.open_classes import mypyc_attr
@mypyc_attr(allow_interpreted_subclasses=True)
class Control:
    def __init__(self, rate: float) -> None:
        self.rate: float = rate
    def cut(self) -> float:
        return self.rate
""",
    "closed": """
class Closed:
    def name(self) -> str:
        return "closed"
""",
    "halving": f"""
{CONTROL}
class Halving(Control):
    def cut(self) -> float:
        self.rate = self.rate / 2
        return self.rate
""",
    "sealed": """
from testbed.protocols.congestion.closed import Closed
class Sealed(Closed):
    def name(self) -> str:
        return "sealed"
""",
    "registry": f"""
from testbed.protocols.congestion import halving
{CONTROL}
def make(rate: float) -> Control:
    return halving.Halving(rate)
""",
    "sender": f"""
{CONTROL}
from testbed.protocols.congestion.registry import make
from testbed.protocols.congestion.limits import MOST
def send(times: int) -> float:
    control: Control = make(64.0)
    for _ in range(min(times, MOST)):
        control.cut()
    return control.rate
""",
    "router": """
from testbed.protocols.congestion.sender import send
def route() -> float:
    return send(2)
""",
}
"""A protocol in small: a controller that a registry names, which is interpreted, and a sender that knows the base class
of controllers alone."""
COMPILED = ("limits", "control", "closed", "halving", "sealed", "sender", "router")


def name(module: str) -> str:
    return f"{PACKAGE}.{module}"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of these sources, which are all that there is to compile, and an empty cache."""
    package = tmp_path / "testbed" / "protocols" / "congestion"
    package.mkdir(parents=True)
    for directory in (package.parent, package.parents[1]):
        (directory / "__init__.py").write_text("")
    for header in modules.NATIVE_HEADERS:
        (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / header).write_text("")
    shutil.copy2(CHECKOUT / "testbed/protocols/open_classes.py", package.parent)
    for module, text in SOURCES.items():
        (package / f"{module}.py").write_text(f"from __future__ import annotations\n{text}")
    for of in (modules, builder):
        monkeypatch.setattr(of, "CHECKOUT", tmp_path)
    monkeypatch.setattr(modules, "PACKAGED", tmp_path / "packaged")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(PURE, raising=False)
    return package


def change(tree: Path, module: str, old: str, new: str) -> None:
    path = tree / f"{module}.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def manifest(native: Mapping[str, set[str]]) -> Manifest:
    """The manifest of these sources as they are, where C uses `native` beside what sources import."""
    digests = modules.source_digests()
    imports = Imports(modules.CHECKOUT, digests)
    built = {
        one: BuiltModule(
            source=digest, needs=frozenset({*imports.needs(one), *native.get(one, ())}), layout=imports.layout(one)
        )
        for one, digest in digests.items()
    }
    beside = modules.file_digests(imports.surrounding_files())
    return Manifest(maker=modules.maker(), modules=built, surroundings=imports.surroundings(), beside=beside)


def left_out(before: Manifest) -> set[str]:
    digests = modules.source_digests()
    found = modules_to_leave_out(before, digests, Imports(modules.CHECKOUT, digests))
    return {one.removeprefix(f"{PACKAGE}.") for one in found}


@pytest.mark.parametrize(
    ("module", "old", "new", "expected"),
    [
        ("halving", "/ 2", "/ 4", {"halving"}),
        ("router", "send(2)", "send(1)", {"router"}),
        ("sender", "64.0", "32.0", {"sender", "router"}),
        ("limits", "3", "4", {"limits", "sender", "router"}),
        ("sealed", '"sealed"', '"shut"', {"sealed", "closed"}),
        ("control", "return self.rate", "return 0.0", {"control", "halving", "sender", "router"}),
    ],
)
def test_left_out_are_those_that_go_with_it(tree: Path, module: str, old: str, new: str, expected: set[str]) -> None:
    before = manifest({})
    assert left_out(before) == set()
    change(tree, module, old, new)
    assert left_out(before) == expected


def test_who_calls_native_code_goes_with_it_though_it_imports_nothing(tree: Path) -> None:
    """A type that is only passed through: the C of the router calls methods of the controller's base class."""
    before = manifest({name("router"): {name("control")}})
    change(tree, "control", "return self.rate", "return 0.0")
    assert "router" in left_out(before)


def test_a_new_module_is_interpreted_and_one_that_is_gone_takes_its_importers_along(tree: Path) -> None:
    before = manifest({})
    (tree / "aimd.py").write_text(
        "from testbed.protocols.congestion.control import Control\nclass Aimd(Control): ...\n"
    )
    assert left_out(before) == {"aimd"}
    (tree / "limits.py").unlink()
    assert left_out(before) == {"aimd", "limits", "sender", "router"}


def test_a_source_that_is_no_python_is_left_out_like_any_other(tree: Path) -> None:
    before = manifest({})
    (tree / "halving.py").write_text("class Halving(\n")
    assert left_out(before) == {"halving"}


def test_constants_are_followed_to_where_they_come_from(tree: Path) -> None:
    """What a compiler may compute of a constant is in the code of whoever imports it."""
    (tree / "registry.py").write_text(
        (tree / "registry.py").read_text()
        + "from testbed.protocols.congestion import limits\nTWICE = 2 * limits.MOST\n"
    )
    (tree / "router.py").write_text("from testbed.protocols.congestion.registry import TWICE as many\n")
    before = manifest({})
    assert before.modules[name("router")].needs == {name("limits")}


def test_another_layout_of_a_named_tuple_concerns_everybody(tree: Path) -> None:
    """Who reads `x.b` has the place of `b` in its code, whoever gave it the tuple."""
    pair = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int\n"
    (tree / "router.py").write_text(pair)
    before = manifest({})
    (tree / "router.py").write_text(f"{pair}\n    def sum(self) -> int:\n        return self.a + self.b\n")
    assert left_out(before) == {"router"}
    (tree / "router.py").write_text(pair.replace("a: int", "z: int\n    a: int"))
    assert left_out(before) == set(COMPILED)


def test_constants_of_modules_that_are_not_compiled_are_those_of_the_build(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "_compile", lambda *_: pytest.fail("it was compiled"))
    registry, sender = tree / "registry.py", tree / "sender.py"
    registry.write_text(f"{registry.read_text()}FIRST = 64.0\n")
    sender.write_text(sender.read_text().replace("import make", "import FIRST, make").replace("64.0", "FIRST"))
    whole = a_whole_build()
    registry.write_text(f"{registry.read_text()}# a comment\n")
    assert build().directory == whole, "nothing that is in compiled code has changed"
    change(tree, "halving", "/ 2", "/ 4")
    assert build(whole=False).left_out == (name("halving"),)
    change(tree, "halving", "/ 4", "/ 8")
    change(tree, "registry", "64.0", "32.0")
    for whole_one in (False, True):
        with pytest.raises(pytest.fail.Exception, match="it was compiled"):
            build(whole=whole_one)
    change(tree, "halving", "/ 8", "/ 2")
    with pytest.raises(pytest.fail.Exception, match="it was compiled"):
        build()  # its key has no source of the registry


def test_names_in_c_are_those_of_the_module_with_the_most_words() -> None:
    prefixes = {"a.sender": "a___sender___", "b.sender": "b___sender___", "a.control": "control___"}
    texts = {
        "a.sender": "CPyDef_a___sender___run(); ((control___ControlObject *)x)->_rate; CPyStatic_b___sender___LIMIT",
        "b.sender": "static PyObject *CPyDef_b___sender___run(void) { return CPyModule_builtins; }",
        "a.control": "CPyType_control___Control; CPyTagged x___y;",
    }
    assert native_needs(texts, prefixes) == {
        "a.sender": {"a.control", "b.sender"},
        "b.sender": set(),
        "a.control": set(),
    }
    with pytest.raises(ValueError, match=r"the C of a\.control does not name it"):
        native_needs(texts | {"a.control": "CPyType_renamed"}, prefixes)


def a_whole_build() -> Path:
    """A build of the sources as they are, of empty libraries."""
    directory = modules.builds_directory() / modules.build_key()
    directory.mkdir(parents=True)
    for one in (GROUP, *map(name, COMPILED)):
        (directory / f"{one}.so").write_text(one)
    manifest({}).write(directory)
    return directory


def test_an_edit_of_a_controller_compiles_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = a_whole_build()
    change(tree, "halving", "/ 2", "/ 4")
    assert find_build() == {}, "without a word, nothing is taken from other sources"
    monkeypatch.setattr(builder, "_compile", lambda *_: pytest.fail("it was compiled"))
    made = build(whole=False)
    assert (made.left_out, made.modules, made.seconds) == ((name("halving"),), len(COMPILED) - 1, None)
    assert made.directory != whole and left_out_of(str(made.directory)) == made.left_out
    assert sorted(find_build()) == sorted([GROUP, *(name(one) for one in COMPILED if one != "halving")])
    assert build(whole=False).left_out == made.left_out, "it is there already"
    change(tree, "halving", "/ 4", "/ 2")
    assert build(whole=False).directory == whole and left_out_of(str(whole)) == ()


def test_who_edits_does_not_wait_for_somebody_who_compiles(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_whole_build()
    change(tree, "halving", "/ 2", "/ 4")
    monkeypatch.setattr(builder, "_compile", lambda *_: pytest.fail("it was compiled"))
    with (modules.builds_directory() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert build(whole=False).left_out == (name("halving"),)
        assert build(whole=False).left_out == (name("halving"),), "it is there already"


def test_who_has_to_wait_says_so(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one compiles the same, and what it has made is taken."""
    builds = modules.builds_directory()
    builds.mkdir(parents=True)
    monkeypatch.setattr(builder, "_compile", lambda *_: pytest.fail("it was compiled"))
    said: list[str] = []
    with (builds / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def say(text: str) -> None:
            said.append(text)
            a_whole_build()
            fcntl.flock(lock, fcntl.LOCK_UN)

        assert build(say).seconds is None
    assert len(said) == 1 and "waiting for another testbed" in said[0] and "TESTBED_PURE=1" in said[0]


def test_what_somebody_else_has_taken_over_stays(tree: Path, tmp_path: Path) -> None:
    whole = a_whole_build()
    taken = modules.builds_directory() / "taken"
    (taken / "theirs").mkdir(parents=True)
    take_over(Partial(directory=whole, left_out=(name("halving"),)), modules.builds_directory(), taken)
    assert [item.name for item in taken.iterdir()] == ["theirs"]
    assert sorted(item.name for item in modules.builds_directory().iterdir()) == sorted(["taken", whole.name])


def test_too_many_are_compiled_anew(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_whole_build()
    compiled: list[Path] = []
    monkeypatch.setattr(builder, "_compile", lambda sources, scratch, say: compiled.append(scratch / "made"))
    for number in range(MOST_LEFT_OUT + 1):
        (tree / f"more{number}.py").write_text("")
    with pytest.raises(FileNotFoundError):
        build(whole=False)
    assert compiled


def test_a_whole_build_takes_the_place_of_a_partial_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_whole_build()
    change(tree, "halving", "/ 2", "/ 4")
    partial = build(whole=False).directory

    def compiled(sources: object, scratch: Path, say: object) -> None:
        (scratch / "made").mkdir()
        (scratch / "made" / f"{GROUP}.so").write_text("new")

    monkeypatch.setattr(builder, "_compile", compiled)
    made = build()
    assert (made.directory, made.left_out) == (partial, ()) and find_build() == {GROUP: str(partial / f"{GROUP}.so")}


def test_what_is_edited_while_it_is_compiled_is_no_build(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(sources: object, scratch: Path, say: object) -> None:
        (scratch / "made").mkdir()
        change(tree, "halving", "/ 2", "/ 4")

    monkeypatch.setattr(builder, "_compile", compiled)
    with pytest.raises(BuildError, match="changed while it was compiled"):
        build()
    assert [item.name for item in modules.builds_directory().iterdir()] == ["lock"]


def test_a_build_of_another_interpreter_or_without_a_manifest_is_not_taken(tree: Path) -> None:
    whole = a_whole_build()
    change(tree, "halving", "/ 2", "/ 4")
    digests = modules.source_digests()
    for text in ("", "[]", '{"maker": "x", "surroundings": "", "beside": {}, "modules": {"a": 1}}'):
        (whole / "manifest.json").write_text(text)
        assert read_manifest(whole) is None
    (whole / "manifest.json").unlink()
    builder._take_over_what_fits(whole.parent, whole.parent / "new")
    Manifest(maker="another", modules={one: BuiltModule(source=text) for one, text in digests.items()}).write(whole)
    builder._take_over_what_fits(whole.parent, whole.parent / "new")
    assert not (whole.parent / "new").exists()


def test_a_build_that_somebody_else_removes_is_taken_whole_or_not_at_all(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = a_whole_build()
    half: list[Path] = []
    rmtree = shutil.rmtree

    def removed(path: Path, **settings: Any) -> None:
        half.extend(one for one in builder._finished(whole.parent) if one == path)
        rmtree(path, **settings)

    monkeypatch.setattr(shutil, "rmtree", removed)
    for number in range(builder.KEPT_BUILDS + 1):
        (tree / "halving.py").write_text(f"VALUE = {number}\n")
        build(whole=False)
    assert len(list(whole.parent.iterdir())) == 1 + builder.KEPT_BUILDS and half == []


@pytest.mark.parametrize("when", ["before it is looked at", "before it is taken", "while its files are taken"])
def test_a_build_that_has_just_gone_is_none(tree: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Somebody else has made more of them meanwhile: all is compiled, and nothing raises an error of the kernel's."""
    whole = a_whole_build()
    change(tree, "halving", "/ 2", "/ 4")

    def found(*arguments: Any) -> Partial | None:
        if when == "before it is looked at":
            shutil.rmtree(whole)
        partial = find_partial(*arguments)
        if when == "before it is taken":
            shutil.rmtree(whole)
        return partial

    def taken(*arguments: Any) -> None:
        if when == "while its files are taken":
            shutil.rmtree(whole)
        take_over(*arguments)

    def compiled(sources: object, scratch: Path, say: object) -> None:
        (scratch / "made").mkdir()

    monkeypatch.setattr(builder, "find_partial", found)
    monkeypatch.setattr(builder, "take_over", taken)
    monkeypatch.setattr(builder, "_compile", compiled)
    assert build(whole=False).seconds is not None
    assert builder._last_used_at(whole) == 0.0


def test_many_tries_do_not_push_out_the_build_that_they_are_taken_from(tree: Path) -> None:
    whole = a_whole_build()
    for number in range(builder.KEPT_BUILDS + 3):
        (tree / "halving.py").write_text(f"VALUE = {number}\n")
        assert build(whole=False).left_out == (name("halving"),)
    directories = [item for item in whole.parent.iterdir() if item.is_dir()]
    assert whole in directories and len(directories) == 1 + builder.KEPT_BUILDS


CONTROLLER_MODULES = sorted(
    f"testbed.protocols.{path.relative_to(CHECKOUT / 'testbed/protocols').with_suffix('').as_posix().replace('/', '.')}"
    for folder in ("congestion", "uet/congestion")
    for path in (CHECKOUT / "testbed/protocols" / folder).glob("*.py")
    if "\nCONTROLLER:" in path.read_text()
)


@cache
def our_modules() -> tuple[Manifest, Imports]:
    """What a build of the checkout says of its modules, by what sources import; C uses no more of a controller."""
    digests = modules.source_digests()
    imports = Imports(CHECKOUT, digests)
    built = {
        one: BuiltModule(source=digest, needs=frozenset(imports.needs(one)), layout=imports.layout(one))
        for one, digest in digests.items()
    }
    return Manifest(maker="", modules=built), imports


def with_edited(module: str) -> set[str]:
    """What is left out when a module of ours is edited."""
    built, imports = our_modules()
    edited = {one: known.source for one, known in built.modules.items()} | {module: "edited"}
    return modules_to_leave_out(built, edited, imports)


def test_every_controller_has_a_module() -> None:
    assert len(CONTROLLER_MODULES) == len(CONTROLLERS) + len(FLOW_CONTROLLERS) - 1, "`none` of RoCE is the base class"


@pytest.mark.parametrize("module", CONTROLLER_MODULES)
def test_a_controller_is_left_out_alone_but_for_those_made_of_it(module: str) -> None:
    assert with_edited(module) <= {module, "testbed.protocols.uet.congestion.both"}


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from testbed.base.compiled.finder import install, left_out
install()
from testbed.protocols.congestion import closed, halving, limits, registry, router, sealed, sender
every = (closed, halving, limits, registry, router, sealed, sender)
print(router.route(), sealed.Sealed().name())
print(*(one.__name__.rpartition(".")[2] for one in every if one.__file__.endswith(".so")))
print(*left_out())
"""


@pytest.mark.process
@pytest.mark.skipif(bool(builder.missing()), reason="compiling needs a C compiler, Python's headers and mypyc")
def test_an_edited_controller_runs_in_a_real_build(tree: Path, tmp_path: Path) -> None:
    """mypyc's classes, calls and constants: the edit acts, and all that does not go with it stays compiled."""
    base = tmp_path / "testbed" / "base"
    shutil.copytree(CHECKOUT / "testbed/base/compiled", base / "compiled")
    for file in ("__init__.py", "files.py"):
        shutil.copy2(CHECKOUT / "testbed/base" / file, base)

    def run() -> list[str]:
        words = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()

    assert build().left_out == ()
    assert run() == ["16.0 sealed", "closed halving limits router sealed sender", ""]
    change(tree, "halving", "/ 2", "/ 4")
    assert build(whole=False).left_out == (name("halving"),)
    assert run() == ["4.0 sealed", "closed limits router sealed sender", name("halving")]
    change(tree, "sealed", '"sealed"', '"shut"')
    assert build(whole=False).left_out == (name("closed"), name("halving"), name("sealed"))
    assert run() == ["4.0 shut", "limits router sender", " ".join(map(name, ("closed", "halving", "sealed")))]
