"""Keys of a node that containerlab has, and netlab below `clab`, as ours: images, binds, environment, limits, commands.

A key that has nothing like it here gets a remark with what the table of foreign words says to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.base.yaml.paths import Path as KeyPath
from testbed.lab.core.model.containers import SWITCH_IMAGE
from testbed.lab.core.schema import foreign
from testbed.lab.features.containers.schema import CAPABILITIES
from testbed.lab.formats.commands import SCRIPT, at_home, sort_commands
from testbed.lab.formats.imported import ImportedNode, Remarks, shown, without_removal

NETNS, DOCKER = "netns", "docker"
RUNTIMES = (DOCKER, NETNS)
"""The runtimes of a node with an image: it stays a container, or becomes a network namespace."""
ROUTER_IMAGE = re.compile(r"(?:^|[/_-])(?:frr|frrouting|bird|bird2|gobgp|openbgpd|exabgp|holo|vyos)(?:[:@/_-]|$)", re.I)
"""Names of images that route: their nodes are switches."""
_FRR_IMAGE = re.compile(r"(?:^|[/_-])frr(?:outing)?(?:[:@/_-]|$)", re.I)
_FRR_FILES = "/etc/frr"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?")
_VARIABLE = re.compile(
    r"\$(?:\$|(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-=+])(?P<word>[^}]*))?\})"
)
_MEMORY = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([kmgt]?)i?b?\s*", re.I)
_BINARY = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_SILENT = frozenset({"kind", "group", "device", "role", "name", "interfaces", "position"})
"""Keys that the reader of the tool has read, or that say nothing of the lab."""
_NO_CHANGE: Mapping[str, object] = {"network-mode": "none", "runtime": "docker"}
"""Keys that say with this value what is so here."""
_PLANNED_COMMANDS = "addresses, routes and daemons are planned; `testbed inspect routes` shows them"
_ENV_TO_DO = "write its name in letters, digits and '_'"


@dataclass(slots=True, kw_only=True)
class NodeKeys:
    """Reads the keys of nodes of one file. `directory` is that of the file, `node_directory` that of a node's files."""

    remarks: Remarks
    directory: Path
    runtime: str
    environment: Mapping[str, str]
    node_directory: Callable[[str], Path]

    def read(self, node: ImportedNode, keys: Mapping[str, Any], *, usable: bool, paths: Mapping[str, KeyPath]) -> None:
        """Take over what the node's keys say. `usable`: its image can be the container of a switch or host here.

        `paths` has the place of each key in the file.
        """
        reading = _Reading(self, node, {key: self._expanded(value) for key, value in keys.items()}, paths, usable)
        reading.read()

    def _expanded(self, value: Any) -> Any:
        """Return a value with the variables in its texts replaced, as a shell does and containerlab."""
        match value:
            case str():
                return _VARIABLE.sub(self._variable, value) if "$" in value else value
            case list():
                return [self._expanded(one) for one in value]
            case dict():
                return {key: self._expanded(one) for key, one in value.items()}
        return value

    def _variable(self, match: re.Match[str]) -> str:
        name = match["plain"] or match["name"]
        if name is None:
            return "$"
        value, how, word = self.environment.get(name), match["how"] or "", match["word"] or ""
        unset = value is None or (":" in how and not value)
        if "+" in how:
            return "" if unset else word
        return word.removeprefix("$") if unset and how else value or ""


_OWN_CONFIGURATION = "routing is planned; where it is for FRR, startup-config: FILE gives it to a node here, too"


class _Reading:
    """The keys of one node while they are read."""

    def __init__(
        self, keys: NodeKeys, node: ImportedNode, values: Mapping[str, Any], paths: Mapping[str, KeyPath], usable: bool
    ) -> None:
        self.keys = keys
        self.node = node
        self.values = values
        self.paths = paths
        self.is_container = keys.runtime == DOCKER and usable and isinstance(values.get("image"), str)
        self.usable = usable
        self.binds: dict[str, str] = {}

    def read(self) -> None:
        if self.is_container:
            self.node.settings["runtime"] = DOCKER
        for key, value in self.values.items():
            if value is None or key in _SILENT or _NO_CHANGE.get(key) == value:
                continue
            reader = _READERS.get(key)
            if reader is None:
                self.left_out(key, value)
            else:
                reader(self, value)
        self.read_commands()

    def left_out(self, key: str, value: object, to_do: str | None = None) -> None:
        """Note that a key is left out; what to do is said by the table of foreign words, if not by the caller."""
        if to_do is None:
            to_do = without_removal(foreign.NODE_KEYS.get(key))
        what = f"{key}: {shown(value)}" if isinstance(value, str | int | float) and len(str(value)) <= 20 else key
        self.keys.remarks.left_out(key if key in foreign.NODE_KEYS else what, self.node.there, self._path(key), to_do)

    def _path(self, key: str) -> KeyPath:
        return self.paths.get(key, self.node.path)

    # ------------------------------------------------------------------ one for each key

    def read_image(self, value: object) -> None:
        if self.is_container:
            self.node.settings["image"] = value
        elif not self.usable:
            self.left_out("image", value, "nothing: it runs FRR here, not the system of its image")
        else:
            to_do = "it has this machine's programs; `--runtime docker` keeps the image"
            self.keys.remarks.left_out("image", self.node.there, self._path("image"), to_do)

    def read_startup(self, value: object) -> None:
        self.left_out("startup-config", value, _OWN_CONFIGURATION)

    def read_binds(self, value: object) -> None:
        kept = []
        for one in texts(value):
            bind = self._bind(one)
            if bind is not None:
                kept.append(bind)
        if kept and self.is_container:
            self.node.settings["binds"] = kept
        elif kept and self.usable:
            to_do = "it sees all of this machine's files: they are where they are"
            self.keys.remarks.changed("binds", self.node.there, self._path("binds"), to_do)

    def _bind(self, text: str) -> str | None:
        """Return a bind with whole paths; None, with a remark, for one that cannot be."""
        source, colon, rest = text.partition(":")
        target, _, options = rest.partition(":")
        if not colon or not target.startswith("/"):
            self.left_out("binds", text, "an anonymous volume is not made: write /here:/there")
            return None
        if target == SCRIPT:
            return None  # it has what is planned here again
        if self.node.is_switch and (target == _FRR_FILES or target.startswith(f"{_FRR_FILES}/")):
            to_do = "routing is planned and FRR configured from it; exec lists commands that run after that"
            self.keys.remarks.left_out(f"binds to {_FRR_FILES}", self.node.there, self._path("binds"), to_do)
            return None
        if target.rstrip("/") in ("", "/proc", "/sys", "/dev") or "\0" in text:
            self.left_out("binds", text, "bind to another path")
            return None
        if self.node.is_switch and not self.usable:
            self.left_out("binds", text, "nothing: it runs FRR here, not the system of its image")
            return None
        whole = str(self._whole_path(source))
        self.binds[target] = whole
        return f"{whole}:{target}" + (":ro" if "ro" in options.split(",") else "")

    def _whole_path(self, source: str) -> Path:
        """Return a path as containerlab means it: relative to the file, `~` and its own variables replaced."""
        directory = self.keys.node_directory(self.node.there)
        source = source.replace("__clabNodeName__", self.node.there)
        source = source.replace("__clabNodeDir__", str(directory)).replace("__clabDir__", str(directory.parent))
        return Path(os.path.normpath(self.keys.directory / Path(source).expanduser()))

    def read_env(self, value: object) -> None:
        if not isinstance(value, Mapping):
            self.left_out("env", value, "write env: {NAME: value}")
            return
        found = {}
        for name, text in value.items():
            if name.startswith("__") or not _ENV_NAME.fullmatch(name):
                self.left_out(f"env.{name}", text, "write the variables out" if name.startswith("__") else _ENV_TO_DO)
            else:
                found[name] = _text(text)
        if found:
            self.node.settings["env"] = found

    def read_labels(self, value: object) -> None:
        found = {}
        for name, text in value.items() if isinstance(value, Mapping) else ():
            written = _text(text)
            if name == "pod" or not _LABEL_NAME.fullmatch(name) or len(written) > 256:
                self.left_out(f"labels.{name}", text, "name it in letters, digits, '_', '.' and '-', and not pod")
            else:
                found[name] = written
        if found:
            self.node.settings["labels"] = {**self.node.settings.get("labels", {}), **found}

    def read_command_line(self, key: str, value: object) -> None:
        if self.is_container and isinstance(value, str) and value.strip():
            self.node.settings[key] = value
        elif self.is_container and isinstance(value, list):
            self.node.settings[key] = [str(word) for word in value]
        else:
            self.left_out(key, value, "only a container has it")

    def read_cpu(self, value: object) -> None:
        if self.is_container and isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            self.node.settings["cpu"] = value
        else:
            self.left_out("cpu", value, "only a container has it")

    def read_memory(self, value: object) -> None:
        match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
        if not self.is_container or match is None:
            self.left_out("memory", value, "only a container has it, such as 256MB")
            return
        factor = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[match[2].lower()]
        size = int(float(match[1]) * factor)
        unit = next((unit for unit in ("GiB", "MiB", "KiB") if size % _BINARY[unit] == 0), "B")
        self.node.settings["memory"] = f"{size // _BINARY.get(unit, 1)}{unit}"

    def read_capabilities(self, value: object) -> None:
        names = [one.upper().removeprefix("CAP_") for one in texts(value)]
        unknown = [name for name in names if name not in CAPABILITIES]
        if unknown or not self.is_container:
            self.left_out("cap-add", value, "a node gets the capabilities it needs: name those of capabilities(7)")
        known = sorted({name for name in names if name in CAPABILITIES})
        if known and self.is_container:
            self.node.settings["capabilities"] = known

    def read_sysctls(self, value: object) -> None:
        """Sysctls become commands. Those of the network are the namespace's own; others are this machine's."""
        commands = []
        for name, text in value.items() if isinstance(value, Mapping) else ():
            if name.startswith("net.") and re.fullmatch(r"[A-Za-z0-9_.*/-]+", name):
                commands.append(f"sysctl -w {name}={_text(text)}")
            else:
                self.left_out(f"sysctls.{name}", text, "it is one for the whole machine, which a lab leaves as it is")
        self.node.settings["exec"] = [*commands, *self.node.settings.get("exec", [])]

    def read_health_check(self, value: object) -> None:
        test = value.get("test") if isinstance(value, Mapping) else None
        if not self.is_container or not isinstance(value, Mapping) or not isinstance(test, list) or len(test) < 2:
            self.left_out("healthcheck", value, "only a container has it, with a command as its test")
            return
        words = [str(word) for word in test]
        found: dict[str, object] = {"test": words[1:] if words[0] == "CMD" else ["sh", "-c", words[1]]}
        for there, here in (("interval", "interval"), ("timeout", "timeout"), ("start-period", "start_period")):
            if isinstance(seconds := value.get(there), int) and seconds > 0:
                found[here] = f"{seconds}s"
        if isinstance(retries := value.get("retries"), int) and retries > 0:
            found["retries"] = retries
        self.node.settings["healthcheck"] = found

    def read_commands(self) -> None:
        """Keep the commands that have something left to do."""
        written = texts(self.values.get("exec"))
        if not written:
            return
        path = self._path("exec")
        if self.node.is_switch and not self.usable:
            to_do = "they are for another system; its switch here runs FRR, whose routing is planned"
            self.keys.remarks.left_out("exec", self.node.there, path, to_do)
            return
        found = sort_commands(written)
        self.node.addresses |= found.addresses
        if found.planned:
            first = found.planned[0].split()
            what = f"exec of {' '.join(first[:2])}" if first[0] == "ip" else f"exec of {first[0]}"
            self.keys.remarks.left_out(what, self.node.there, path, _PLANNED_COMMANDS)
        kept = found.kept if self.is_container else [at_home(command, self.binds) for command in found.kept]
        if kept:
            self.node.settings["exec"] = [*self.node.settings.get("exec", []), *kept]
        if kept and not self.is_container and self.values.get("image"):
            to_do = "they run with this machine's programs and files: see that it has them"
            self.keys.remarks.changed("exec", self.node.there, path, to_do)


_READERS: Mapping[str, Callable[[_Reading, Any], None]] = {
    "image": _Reading.read_image,
    "startup-config": _Reading.read_startup,
    "binds": _Reading.read_binds,
    "env": _Reading.read_env,
    "labels": _Reading.read_labels,
    "cmd": lambda reading, value: reading.read_command_line("cmd", value),
    "entrypoint": lambda reading, value: reading.read_command_line("entrypoint", value),
    "cpu": _Reading.read_cpu,
    "memory": _Reading.read_memory,
    "cap-add": _Reading.read_capabilities,
    "sysctls": _Reading.read_sysctls,
    "healthcheck": _Reading.read_health_check,
    "exec": lambda reading, value: None,  # read last: it needs the binds
}


def is_router(image: object, binds: Sequence[str], commands: Sequence[str]) -> bool:
    """Tell whether a Linux container routes, by its image, the files that it is given, or the commands that it runs."""
    if isinstance(image, str) and (has_frr(image) or ROUTER_IMAGE.search(image.partition("@")[0])):
        return True
    if any(f":{_FRR_FILES}" in bind for bind in binds):
        return True
    return any(command.split()[:1] in (["vtysh"], ["birdc"], ["gobgp"]) for command in commands)


def has_frr(image: object) -> bool:
    """Tell by its name whether an image has FRR, so that it can be the container of a switch."""
    if not isinstance(image, str):
        return False
    return image == SWITCH_IMAGE or _FRR_IMAGE.search(image.partition("@")[0]) is not None


def texts(value: object) -> list[str]:
    """Return the texts of a list, or the one that stands in its place."""
    values = value if isinstance(value, list) else [value]
    return [str(one) for one in values if isinstance(one, str | int | float)]


def _text(value: object) -> str:
    """Return a value as YAML writes it."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return str(value)
