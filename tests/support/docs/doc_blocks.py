"""The command blocks of README.md and docs/**/*.md: what they are, and which test executes each.

Every fenced block in `sh`, `yaml` or `python` is executed by a test or says why not; `doc_runner` executes them.
Blocks of another language (`text` for output, `json`, `c`, `dot`, directives of MyST) are not. `bash`, `console` and
fences without a language are mistakes.

An HTML comment above a fence says how, where the defaults do not do; each of its lines is `word: value`:

    page: TIER          once, below the title: the tier of the page's sh and python blocks (else `unit`)
    run: TIER           the tier of this block: unit (no root), netns, docker, labvm; torch and jax (netns, with these)
    not run: REASON     nobody executes it
    file: NAME          it is saved in the page's directory under that name (yaml: after `into`; python: and not run)
    into: BASE          yaml: it is merged over BASE, a shipped or saved file or the name of a design, and then loaded
    bad: CODE           yaml: it must be refused with this error code
    says: TEXT          python: its output must contain TEXT; may stand more than once

and for the lines of a sh block, by a prefix of the line as it is written:

    with: PREFIX => ARGUMENTS     it is run with these as well, or in place of its own options of these names
    instead: PREFIX => COMMAND    this is run in its place
    after: PREFIX => COMMAND      this is run after it, too
    exit: PREFIX => 0,1           its exit code is one of these
    says: PREFIX => TEXT          its output must contain TEXT
    until: PREFIX => TEXT         it runs until its output contains TEXT and then, after Ctrl-C, ends with 0
    skip: PREFIX => REASON        it is not run

Blocks of a page run in their order, in one directory that has `./lab` and copies of topologies/, scenarios/, images/;
each line of a sh block is a command of its own, so neither `cd` nor `export` reaches the next.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
TIERS = ("unit", "netns", "docker", "labvm", "torch", "jax")
EXECUTED = ("sh", "yaml", "python")
SHOWN = ("text", "json", "jsonc", "c", "dot", "lua", "csv", "toml", "ini", "xml", "diff")
BLOCK_WORDS = ("run", "not run", "file", "into", "bad")
LINE_WORDS = ("with", "instead", "after", "exit", "says", "until", "skip")

_FENCE = re.compile(r"(?P<indent>\s*)(?P<mark>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
_WORD = re.compile(rf"\s*({'|'.join(('page', *BLOCK_WORDS, *LINE_WORDS))}):\s*(.*?)\s*$")


class DocError(Exception):
    """A block that no test can execute as it is marked; the message begins with file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRule:
    """A change that the test makes to the lines of a block that begin with `prefix`."""

    word: str
    prefix: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    tier: str
    """Who runs it; for YAML, which `unit` checks whatever the page's tier is, always `unit`."""
    not_run: str = ""
    file: str = ""
    into: str = ""
    bad: str = ""
    says: tuple[str, ...] = ()
    rules: tuple[LineRule, ...] = ()

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"

    def commands(self) -> list[str]:
        """The commands of a sh block: lines, joined at a trailing backslash, without comments."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        return [bare for line in joined.splitlines() if (bare := without_comment(line).strip())]

    def rule(self, word: str, command: str) -> str | None:
        """The value of the rule of that kind for a command; None if it has none."""
        return next(iter(self.rules_for(word, command)), None)

    def rules_for(self, word: str, command: str) -> list[str]:
        """The values of all rules of that kind for a command."""
        return [one.value for one in self.rules if one.word == word and command.startswith(one.prefix)]


def name_of(page: Path) -> str:
    """A page's path in the checkout."""
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else str(page)


def pages() -> list[Path]:
    """README.md and every page under docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a page that are executed. Raises `DocError` for the first that cannot be."""
    return list(_Reader(page=page).blocks(page.read_text().splitlines()))


def pages_of(tier: str) -> list[Path]:
    """The pages that have something for a tier to run. A page with a mistake counts for `unit`, whose tests tell it."""
    found = []
    for page in pages():
        try:
            blocks = read_blocks(page)
        except DocError:
            if tier == "unit":
                found.append(page)
            continue
        if any(block.tier == tier and not block.not_run for block in blocks):
            found.append(page)
    return found


def without_comment(line: str) -> str:
    """A line of a shell without its comment."""
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place]
    return line


@dataclass(slots=True)
class _Reader:
    page: Path
    tier: str = "unit"
    said: list[tuple[str, str]] = field(default_factory=list)
    """The words of the comment above, until a block takes them or text comes between."""

    def blocks(self, lines: list[str]) -> Iterator[Block]:
        at = 0
        while at < len(lines):
            if "<!--" in lines[at]:
                at = self._comment(lines, at)
                continue
            opened = _FENCE.fullmatch(lines[at])
            if opened is None:
                if lines[at].strip():
                    self._nothing_pending(at)
                at += 1
                continue
            if opened["info"].startswith("{") and not opened["info"].startswith(("{code", "{source")):
                at += 1  # a directive: what is inside is read like the rest, and its end is a fence without words
                continue
            end = self._end(lines, at, opened["mark"])
            if end is None:
                break  # the end of a directive at the end of a page
            if not opened["info"] and self._ends_directive(lines, at):
                at += 1
                continue
            cut = len(opened["indent"])
            text = "".join(line[cut:] + "\n" for line in lines[at + 1 : end])
            if block := self._block(at + 1, opened["info"].split(" ")[0], text):
                yield block
            at = end + 1

    @staticmethod
    def _end(lines: list[str], start: int, mark: str) -> int | None:
        closing = re.compile(rf"\s*{re.escape(mark[0])}{{{len(mark)},}}\s*")
        return next((at for at in range(start + 1, len(lines)) if closing.fullmatch(lines[at])), None)

    @staticmethod
    def _ends_directive(lines: list[str], at: int) -> bool:
        """Tell whether a fence without a language closes a directive that was opened above it."""
        mark = lines[at].strip()
        stack = 0
        for line in lines[:at]:
            if (found := _FENCE.fullmatch(line)) and found["mark"] == mark:
                if found["info"].startswith("{"):
                    stack += 1
                elif not found["info"] and stack:
                    stack -= 1
        return stack > 0

    def _comment(self, lines: list[str], at: int) -> int:
        """Read a comment of one line or more; the number of the line after it."""
        text = lines[at].partition("<!--")[2]
        while "-->" not in text:
            at += 1
            if at == len(lines):
                raise self._error(at, "a comment that never ends")
            text += "\n" + lines[at]
        for line in text.partition("-->")[0].splitlines():
            if not (found := _WORD.fullmatch(line)):
                continue
            word, value = found[1], found[2]
            if word == "page":
                self.tier = self._known_tier(at + 1, value)
            else:
                self.said.append((word, value))
        return at + 1

    def _nothing_pending(self, at: int) -> None:
        if self.said:
            raise self._error(at + 1, f"'{self.said[0][0]}: {self.said[0][1]}' stands above no block")

    def _block(self, line: int, language: str, text: str) -> Block | None:
        said, self.said = self.said, []
        if language not in EXECUTED:
            if language not in SHOWN:
                raise self._error(line, f"a block of the language {language!r}: sh, yaml, python, or text for output")
            if said:
                raise self._error(line, f"a block in {language} is not executed; the comment above says it is")
            return None
        words = {word: value for word, value in said if word in BLOCK_WORDS}
        rules = [(word, value) for word, value in said if word in LINE_WORDS]
        not_run = words.get("not run", "")
        if "not run" in words and len(not_run.split()) < 3:
            raise self._error(line, "'not run:' wants a reason")
        says: tuple[str, ...] = ()
        if language == "python":
            says = tuple(value for word, value in rules if word == "says")
            rules = [(word, value) for word, value in rules if word != "says"]
        if rules and language != "sh":
            raise self._error(line, f"'{rules[0][0]}:' is for blocks in sh")
        if language != "yaml" and (words.get("into") or words.get("bad")):
            raise self._error(line, "'into:' and 'bad:' are for blocks in yaml")
        tier = self._known_tier(line, words.get("run", self.tier))
        block = Block(
            page=self.page,
            line=line,
            language=language,
            text=text,
            tier="unit" if language == "yaml" else tier,
            not_run=not_run,
            file=words.get("file", ""),
            into=words.get("into", ""),
            bad=words.get("bad", ""),
            says=says,
            rules=tuple(self._line_rule(line, word, value) for word, value in rules),
        )
        commands = block.commands() if language == "sh" else []
        for rule in block.rules:
            if not any(command.startswith(rule.prefix) for command in commands):
                raise self._error(line, f"no line begins with {rule.prefix!r}, for which there is '{rule.word}:'")
        return block

    def _line_rule(self, line: int, word: str, value: str) -> LineRule:
        prefix, arrow, rest = value.partition(" => ")
        if not arrow or not rest.strip():
            raise self._error(line, f"'{word}: {value}' is not '{word}: PREFIX => VALUE'")
        return LineRule(word=word, prefix=prefix.strip(), value=rest.strip())

    def _known_tier(self, line: int, tier: str) -> str:
        if tier not in TIERS:
            raise self._error(line, f"there is no tier {tier!r}: {', '.join(TIERS)}")
        return tier

    def _error(self, line: int, message: str) -> DocError:
        return DocError(f"{name_of(self.page)}:{line}: {message}")
