"""The key `startup-config`: a node's own configuration of FRR, from a file or from lines of the topology itself.

Files lie in the folder of the topology file or below it, also where a link leads, so that a topology of somebody else
reads nothing else of this machine. All lines are looked at when the topology is read: a line that no daemon of a lab
knows is a problem with the place where it stands. Whether its words are right, vtysh is asked before a deploy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model
from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import Position, Problem, SpecError
from testbed.base.names import nearest
from testbed.base.validation.fields import Checked, NotNull, OrShort, Text, Written
from testbed.base.validation.model import SpecModel, refusal
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, format_path, quote
from testbed.base.yaml.reader import read_text
from testbed.lab.core.model import ConfigText, StartupConfig
from testbed.lab.core.render.config_text import WrittenLine, parse_configuration
from testbed.lab.core.render.startup import VARIABLES, Stranger, fill_in, find_strangers, find_unknown_variables

KEY = "startup-config"
LONGEST_NAME = 1024
LONGEST_LINES = 65_536
LONGEST_LINE = 1_024
"""The most letters of the name of a file, of all lines in a topology, and of one line."""


@dataclass(frozen=True, slots=True)
class _ConfigFile(Checked):
    """The name of a file of FRR's configuration."""

    def check(self, value: object) -> str:
        name = Text(LONGEST_NAME).check(value)
        if not name.strip() or "\0" in name:
            raise refusal("bad-name", f"{quote(name)} cannot name a file", "write its path, as configs/leaf1.conf")
        return name

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}


@dataclass(frozen=True, slots=True)
class _ConfigLines(Checked):
    """Lines of FRR's configuration: a text, or a list of lines."""

    def check(self, value: object) -> str:
        if isinstance(value, list) and all(isinstance(line, str) and "\n" not in line for line in value):
            value = "\n".join(value)
        if not isinstance(value, str):
            raise refusal("wrong-type", f"must be lines of text or a list of them, not {quote(value)}", "write add: |")
        return Text(LONGEST_LINES).check(value)

    def json_schema(self) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


class StartupSpec(SpecModel):
    """`startup-config: {file: leaf1.conf}`, or `startup-config: leaf1.conf` for short."""

    file: Written[Annotated[str, _ConfigFile()]] = Field(
        default=None,
        description="Names a file, relative to this one, that is FRR's whole configuration, in place of the one that is"
        " rendered.",
    )
    add: Written[Annotated[str, _ConfigLines()]] = Field(
        default=None,
        description="Adds lines of FRR's configuration to what is rendered, or to `file`; those inherited come first.",
    )
    add_file: Written[Annotated[str, _ConfigFile()]] = Field(
        default=None, description="Adds the lines of a file, before those of `add`."
    )


@dataclass(frozen=True, slots=True)
class _OrName(OrShort):
    """A mapping, or the name of the file that is the whole configuration."""

    model = StartupSpec

    def read(self, value: object) -> object:
        if isinstance(value, str) and "\n" in value:
            raise refusal(
                "wrong-type",
                "must name a file; this is a text of several lines",
                f"write {KEY}: {{add: ...}} for lines that are added to what is rendered",
            )
        if not isinstance(value, str):
            raise refusal(
                "wrong-type",
                f"must name a file or be a mapping, not {quote(value)}",
                f"write {KEY}: leaf1.conf for a whole configuration, {KEY}: {{add: ...}} for lines",
            )
        return {"file": value}

    def short_schema(self) -> list[JsonSchemaValue]:
        return [_ConfigFile().json_schema()]


class StartupLayer(SpecModel):
    """A section that has the key."""

    @property
    def startup(self) -> StartupSpec | None:
        """Return the value that is written under the key; None where it is not there."""
        found: StartupSpec | None = getattr(self, KEY)
        return found


_DECLARED: Any = (
    Annotated[Annotated[StartupSpec, _OrName()] | None, NotNull()],
    Field(
        default=None,
        description="Gives nodes that route an FRR configuration of their own: a file in place of what is rendered, or"
        " lines beside it.",
    ),
)
if TYPE_CHECKING:
    StartupSettings = StartupLayer
else:
    StartupSettings = create_model(
        "StartupSettings", __base__=StartupLayer, __doc__=StartupLayer.__doc__, **{KEY: _DECLARED}
    )


class RoleSpec(StartupSettings):
    """An entry of `topology.roles`: what switches of a role have."""


@dataclass(slots=True)
class StartupReader:
    """Reads the configurations of nodes. `problems` has what is wrong with them, each thing once."""

    document: Document
    problems: list[Problem]
    _read: dict[str, str | None] = field(default_factory=dict)
    _looked_at: set[tuple[str, str]] = field(default_factory=set)

    def resolve(self, node: str, role: str, layers: Sequence[tuple[Path, StartupLayer]]) -> StartupConfig | None:
        """Return what the layers, the outermost first, say of a node: the innermost file, and the lines of all."""
        whole: ConfigText | None = None
        added: list[ConfigText] = []
        names = {"node": node, "role": role}
        for path, layer in layers:
            spec = layer.startup
            if spec is None:
                continue
            place: Path = (*path, KEY)
            if spec.file is not None:
                whole = self._file((*place, "file"), spec.file, names) or whole
            if spec.add_file is not None and (one := self._file((*place, "add_file"), spec.add_file, names)):
                added.append(one)
            if spec.add is not None:
                self._look_at(spec.add, (*place, "add"), "")
                added.append(ConfigText(text=spec.add, place=format_path((*place, "add"))))
        return StartupConfig(whole=whole, added=tuple(added)) if whole or added else None

    def _file(self, path: Path, name: str, names: dict[str, str]) -> ConfigText | None:
        """Return what is in a file; None where something is wrong with it."""
        path = path if self.document.has(path) else path[:-1]  # the short form has no key of its own
        for _, _, unknown in find_unknown_variables(name):
            self._refuse(path, f"there is no variable {unknown!r}", _variables_hint(unknown))
            return None
        name = fill_in(name, names)
        if name not in self._read:
            self._read[name] = self._content(path, name)
        text = self._read[name]
        if text is None:
            return None
        shown = str(FilePath(self.document.file).parent / name)
        self._look_at(text, path, shown)
        return ConfigText(text=text, place=format_path(path), file=name)

    def _content(self, path: Path, name: str) -> str | None:
        folder = FilePath(self.document.file).parent
        file = folder / name
        try:
            place = file.resolve()
            is_inside, is_file = place.is_relative_to(folder.resolve()), place.is_file()
        except (OSError, RuntimeError, ValueError):
            is_inside, is_file = True, False
        if not is_inside:
            hint = "put it beside the topology file, or into a folder there"
            self._refuse(path, f"{quote(name)} leads out of the folder of the topology file", hint, code="outside")
        elif not is_file:
            self._refuse(path, f"there is no file {file}", "a path relative to the topology file", code="unreadable")
        else:
            try:
                return read_text(place)
            except SpecError as error:
                self.problems += error.problems
        return None

    def _look_at(self, text: str, path: Path, file: str) -> None:
        """Find what is wrong with the lines of a text, once."""
        if (format_path(path), file) in self._looked_at:
            return
        self._looked_at.add((format_path(path), file))
        for number, column, name in find_unknown_variables(text):
            self._refuse_line(
                path, file, Position(number, column), f"there is no variable {name!r}", _variables_hint(name)
            )
        for number, line in enumerate(text.splitlines(), 1):
            if any(ord(letter) < 32 and letter != "\t" for letter in line) or len(line) > LONGEST_LINE:
                said = f"the line has control characters, or more than {LONGEST_LINE} letters"
                self._refuse_line(path, file, Position(number, 1), said)
        lines = parse_configuration(text)
        raws = text.splitlines()
        for stranger in find_strangers(lines):
            number = stranger.line.number
            raw = raws[number - 1]
            position = Position(number, len(raw) - len(raw.lstrip()) + 1)
            self._refuse_line(path, file, position, *_strange(stranger), code="unknown-command")

    def _refuse(self, path: Path, message: str, hint: str, *, code: str = "bad-config") -> None:
        self.problems.append(self.document.problem(code, path, message, hint=hint))

    def _refuse_line(
        self,
        path: Path,
        file: str,
        position: Position,
        message: str,
        hint: str | None = None,
        *,
        code: str = "bad-config",
    ) -> None:
        """Say what is wrong with a line of a file, or of lines that stand in the topology itself."""
        if file:
            problem = Problem(
                code=code, file=file, path=format_path(path), message=message, position=position, hint=hint
            )
        else:
            entry = (*path, position.line - 1)
            where, said = (entry, message) if self.document.has(entry) else (path, f"line {position.line}: {message}")
            problem = self.document.problem(code, where, said, hint=hint)
        self.problems.append(problem)


def _strange(stranger: Stranger) -> tuple[str, str]:
    """Return what is wrong with a line that no daemon of a lab takes, and what may be done."""
    line: WrittenLine = stranger.line
    if stranger.daemon:
        return (
            f"{quote(line.text)} is for {stranger.daemon}, which no node of a lab runs",
            "remove it: zebra, bgpd, bfdd and staticd run here",
        )
    where = f" in {quote(line.within[-1])}" if line.within else ""
    return f"no daemon of a lab takes {quote(line.text)}{where}", "zebra, bgpd, bfdd and staticd run here"


def _variables_hint(name: str) -> str:
    meant = nearest(name, VARIABLES)
    known = ", ".join(f"{{{{{one}}}}}" for one in VARIABLES)
    return f"did you mean {{{{{meant}}}}}? there are {known}" if meant else f"there are {known}"
