"""Running a verb of ours on another machine as if it were here: which files go along, and how their names change.

The far end has a directory that stands for our root: `/a/b` here is `BASE/a/b` there. Relative names stay as they
are, because the verb runs in `BASE` + our working directory; absolute ones get `BASE` before them. In YAML files they
become relative to the file, which is the same there. What the verb writes or changes below `BASE` comes back to the
same place here.
"""

from __future__ import annotations

import glob
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.vm.image.checkout import add

RAW_VERBS = frozenset({"exec", "shell"})
"""Words after which everything is for a node to interpret, and no name of a file."""
YAML_SUFFIXES = frozenset({".yml", ".yaml"})
FILE_KEYS = frozenset({"file", "groups", "trace", "startup-config", "add_file"})
"""Keys of scenarios and topologies that name files, relative to their own or absolute. A matrix has them as last
words."""
_VARIABLE = re.compile(r"\{\{[^{}]*\}\}")
"""The placeholders of the name or the role of a node in the name of its configuration."""
LARGEST_BYTES = 1 << 20
"""A file that nobody named is sent only up to this size."""


def files_to_send(arguments: Sequence[str], directory: Path, *, beside: bool = True) -> list[Path]:
    """Every file that the verb may read: those it names, the YAML files of `directory` unless `beside` is False, and
    what any YAML file names.

    Missing files are no error: the verb itself says what it misses. Paths are absolute.
    """
    found: dict[Path, None] = {}
    if arguments[:1] and arguments[0] in RAW_VERBS:
        return []
    for path in [*(directory / word for word in _file_words(arguments)), *_beside_scenarios(arguments, directory)]:
        found |= dict.fromkeys(map(_absolute, _meant(path)))
        if (path / "record.json").is_file():
            found |= dict.fromkeys(_absolute(inside) for inside in sorted(path.iterdir()) if inside.is_file())
    for path in sorted(directory.iterdir()) if beside else ():
        if path.suffix in YAML_SUFFIXES and path.is_file() and path.stat().st_size <= LARGEST_BYTES:
            found[_absolute(path)] = None
    waiting = list(found)
    while waiting:
        file = waiting.pop()
        if file.suffix in YAML_SUFFIXES and file.stat().st_size <= LARGEST_BYTES:
            for path in _named_in(file):
                if path not in found:
                    found[path] = None
                    waiting.append(path)
    return list(found)


def far_arguments(arguments: Sequence[str], base: str) -> list[str]:
    """The arguments as they are to be there. An absolute path is one of ours if it begins with a directory of ours, and
    stays as it is if it is one of theirs already."""
    if arguments[:1] and arguments[0] in RAW_VERBS:
        return list(arguments)
    changed: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*changed, word, *words]
        key, separator, value = word.rpartition("=")
        if _existing(value) is not None and not value.startswith(f"{base}/"):
            word = f"{key}{separator}{base}{value}"
        changed.append(word)
    return changed


def directories_of(arguments: Sequence[str]) -> list[str]:
    """Directories that absolute arguments speak of: a verb may write there."""
    if arguments[:1] and arguments[0] in RAW_VERBS:
        return []
    found = (_existing(word) for word in _file_words(arguments))
    return [str(directory) for directory in found if directory is not None]


def _existing(word: str) -> Path | None:
    """Return the nearest directory above an absolute path that exists: a verb may make those below it.

    None where its first directory is none of ours, or it is no path.
    """
    path = Path(word)
    if not path.is_absolute() or not path.name:
        return None
    nearest = next(parent for parent in path.parents if parent.is_dir())
    return None if nearest == Path("/") and path.parent != nearest else nearest


def pack(files: Sequence[Path], directory: Path, more: Sequence[str] = (), *, prefix: str = "") -> bytes:
    """A tar archive of files by their absolute names below `prefix`, with `directory` and `more`, even if empty."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in dict.fromkeys([str(directory), *more]):
            info = tarfile.TarInfo(prefix + name.lstrip("/"))
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, 1_000_000_000
            tar.addfile(info)
        for path in files:
            add(tar, prefix + str(path).lstrip("/"), far_content(path))
    return buffer.getvalue()


def far_content(file: Path) -> bytes:
    """Return what is in a file, as it is to be there: in YAML, names of files that lead there as they do here.

    Absolute ones, and those that go up again from a directory that may not be there, become relative to the file.
    """
    content = file.read_bytes()
    if file.suffix not in YAML_SUFFIXES or len(content) > LARGEST_BYTES:
        return content
    import yaml

    try:
        text = content.decode()
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError):
        return content  # the verb will say so
    spans: dict[int, tuple[int, str]] = {}
    for node in _file_nodes(root, set()):
        name = str(node.value)
        start, end = node.start_mark.index, node.end_mark.index
        if _is_elsewhere(name) and (file.parent / name).parent.is_dir() and name in text[start:end]:
            spans[start] = end, os.path.relpath(_absolute(file.parent / name), _absolute(file.parent))
    for start, (end, name) in sorted(spans.items(), reverse=True):
        text = text[:start] + json.dumps(name, ensure_ascii=False) + text[end:]
    return text.encode()


def unpack(archive: bytes, root: Path = Path("/"), *, prefix: str = "", but: str | None = None) -> list[Path]:
    """Put files that came back where they belong; directories that are missing are made. Returns the files.

    Only names with `prefix`, which is taken off, and not those that begin with `but`.
    """
    written = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if not member.isfile() or not name.startswith(prefix) or (but is not None and name.startswith(but)):
                continue
            relative = Path(name.removeprefix(prefix))
            if relative.is_absolute() or ".." in relative.parts:
                continue
            content = tar.extractfile(member)
            assert content is not None
            path = root / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
            written.append(path)
    return written


def _absolute(path: Path) -> Path:
    """Without links resolved: names are to mean the same there."""
    parts: list[str] = []
    for part in path.absolute().parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return Path(*parts)


def _file_words(arguments: Sequence[str]) -> Iterator[str]:
    for word in arguments:
        if word == "--":
            return
        yield word.rpartition("=")[2] or "/"


def _beside_scenarios(arguments: Sequence[str], directory: Path) -> Iterator[Path]:
    """Files that `KEY=VALUE` may mean: relative names are looked up beside the scenario's file."""
    words = list(_file_words(arguments))
    scenarios = [directory / word for word in words if Path(word).suffix in YAML_SUFFIXES]
    for word in arguments:
        if word == "--":
            return
        if "=" in word and not word.startswith("-"):
            for scenario in scenarios:
                yield scenario.parent / word.rpartition("=")[2]


def _is_elsewhere(name: str) -> bool:
    parts = Path(name).parts
    up = next((place for place, part in enumerate(parts) if part != ".."), len(parts))
    return name.startswith("/") or ".." in parts[up:]


def _file_nodes(node: Any, seen: set[int], *, is_file: bool = False) -> Iterator[Any]:
    """The scalars of a document below keys that name files. Aliases may make it a ring."""
    import yaml

    if id(node) in seen and not isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    match node:
        case yaml.MappingNode():
            for key, value in node.value:
                named = isinstance(key, yaml.ScalarNode) and str(key.value).rpartition(".")[2] in FILE_KEYS
                yield from _file_nodes(value, seen, is_file=named)
        case yaml.SequenceNode():
            for item in node.value:
                yield from _file_nodes(item, seen, is_file=is_file)
        case yaml.ScalarNode() if is_file and node.tag == "tag:yaml.org,2002:str":
            yield node


def _named_in(file: Path) -> Iterator[Path]:
    import yaml

    try:
        document = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError):
        return  # the verb will say so
    for text in _strings(document, set()):
        if len(text) < 4096 and "\n" not in text and "\0" not in text:
            yield from map(_absolute, _meant(file.parent / text))
            if _VARIABLE.search(text) and not Path(text).is_absolute():
                pattern = "*".join(map(glob.escape, _VARIABLE.split(text)))
                yield from (_absolute(path) for path in sorted(file.parent.glob(pattern)) if path.is_file())


def _meant(path: Path) -> Iterator[Path]:
    """The file of this name; and the Chakra traces of all ranks, where it names one, or what they have in common."""
    if path.is_file():
        yield path
    from testbed.workload.formats.registry import names_traces, trace_files

    if path.name and names_traces(path):
        yield from trace_files(path).values()


def _strings(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and id(value) not in seen:
        seen.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item, seen)
