"""Options and arguments that several verbs share, each declared once. What only one verb takes stands with the verb."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import click

from testbed.base.errors import TestbedError
from testbed.cli.command import PATH, argument, option


class Format(StrEnum):
    """The format in which rows are printed: for people, or for programs."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class RecordFormat(StrEnum):
    """The format in which a record is printed: as rows are, or as the results sheet of the IETF drafts on AI
    fabrics."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    CALABRIA = "calabria"

    @property
    def of_rows(self) -> Format:
        """The format of rows that are printed with it: a sheet stands alone, and is for programs, too."""
        return Format.JSON if self is RecordFormat.CALABRIA else Format(self.value)


def parse_record_format(_context: click.Context, _option: click.Parameter, text: str) -> RecordFormat:
    """Find the format of a record. Raises `TestbedError` for a word that names none."""
    try:
        return RecordFormat(text)
    except ValueError as error:
        raise TestbedError(f"--format {text}: expected table, json, csv or calabria") from error


def parse_format(_context: click.Context, _option: click.Parameter, text: str) -> Format:
    """Find the format that `--format` names. Raises `TestbedError` for a word that names none."""
    try:
        return Format(text)
    except ValueError as error:
        raise TestbedError(f"--format {text}: expected table, json or csv") from error


def parse_output(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Find the file to write; None where the text is to be printed, which `-` says, too."""
    return None if str(path) == "-" else path


# --- which lab, and what of it -----------------------------------------------------------------------

topology = option("-t", "--topology", help="Topology file, '-' for standard input; default: the only one here.")
changed_topology = option(
    "-t", "--topology", help="Topology file, '-' for standard input; default: the file that the lab came from."
)
lab_name = option("-n", "--name", help="Lab name; default: the only lab deployed.")
network = option("--network", help="Only this network: backend, frontend, ...")
settings = option("--set", multiple=True, help="Override a key: --set fabric.hosts=4.")
timeout = option("--timeout", default=120.0, help="Seconds to wait for routing to converge.")
node = argument("node", metavar="NODE", help="A node of the lab.")
port = argument("port", metavar="NODE:IF", help="An interface of a node.")
count = option("-c", "--count", type=int, help="Stop after so many packets.")
record = argument("record", metavar="DIR|RECORD.json", type=PATH, help="A record, or the directory of its run.")

output = option("-o", "--output", type=PATH, callback=parse_output, help="File to write; default, and '-': print.")

# --- how the answer is shown -------------------------------------------------------------------------

format_option = option("-f", "--format", default="table", callback=parse_format, help="table, json or csv.")
record_format_option = option(
    "-f",
    "--format",
    default="table",
    callback=parse_record_format,
    help="table, json, csv, or calabria: the results sheet of the IETF drafts on AI fabrics.",
)
quiet = option("-q", "--quiet", is_flag=True, help="No progress.")

# --- what is answered --------------------------------------------------------------------------------

verdicts = {
    0: "pass: every expectation is met",
    1: "fail: an expectation is missed, and the measurement can be trusted",
    2: "invalid: the machine or the lab did not keep up, or the run broke off",
}
"""The exit codes of verbs that run scenarios."""
