"""The verb `validate`."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import SpecError, TestbedError
from testbed.cli import options
from testbed.cli.command import PATH, argument, command, option

if TYPE_CHECKING:
    from testbed.cli.labs.design_table import DesignColumn
    from testbed.lab.core.fabric.figures.prices import PriceList
    from testbed.lab.core.model import Lab


@command("validate")
@argument("files", nargs=-1, metavar="[FILE...]", type=PATH, help="Topologies and scenarios.")
@options.topology
@options.settings
@option("--prices", type=PATH, help="A price list: designs are shown with cost and power.")
@options.format_option
def validate(
    files: tuple[Path, ...], topology: str | None, set: tuple[str, ...], prices: Path | None, format: options.Format
) -> None:
    """Check topology files and report their sizing, or scenario files. Touches nothing, needs no root.

    Several topologies are designs to choose from: one table has a column for each."""
    from testbed.cli.scenarios.named_files import is_scenario_file

    refused = _Refusals()
    scenarios: list[Path] = []
    topologies: list[str | None] = []
    for path in files:
        with refused.kept():
            if is_scenario_file(path):
                scenarios.append(path)
            else:
                topologies.append(str(path))
    if topology is not None or not files:
        topologies.append(topology)
    if scenarios and topologies and format is options.Format.CSV:
        raise TestbedError(
            "--format csv: topologies and scenarios have rows of different kinds",
            hint="validate the topologies by themselves, and the scenarios by themselves, or take --format json",
        )
    several = len(files) + (topology is not None) > 1
    documents: list[Any] = []
    one = len(topologies) == 1 and prices is None and not refused
    if one and (not several or format is options.Format.TABLE):
        with refused.kept():
            _validate_one(topologies[0], set, format)
    elif topologies or prices is not None:
        documents = _validate_designs(topologies, set, prices, format, refused, several=several, alone=not scenarios)
    if scenarios:
        _validate_scenarios(scenarios, set, format, documents, refused)
    refused.tell()


class _Refusals:
    """The errors of some of several files, told once the others are dealt with."""

    def __init__(self) -> None:
        self._errors: list[TestbedError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the error of the body, which is about one file, for later."""
        try:
            yield
        except TestbedError as error:
            self.add(error)

    def add(self, error: TestbedError) -> None:
        """Keep an error for later."""
        self._errors.append(error)

    def tell(self) -> None:
        """Raise what was kept, if anything was: all together, with the highest exit code."""
        if len(self._errors) < 2:
            for error in self._errors:
                raise error
            return
        problems = dict.fromkeys(
            problem for error in self._errors if isinstance(error, SpecError) for problem in error.problems
        )
        others = [str(error) for error in self._errors if not isinstance(error, SpecError)]
        together = SpecError(list(problems)) if not others else TestbedError("\n".join([*map(str, problems), *others]))
        together.exit_code = max(error.exit_code for error in self._errors)
        raise together


def _validate_one(topology: str | None, settings: Sequence[str], form: options.Format) -> None:
    """Print what the file describes, and its sizing."""
    from testbed.cli.labs.sizing import emit_file_sizing, emit_sizing

    lab = _read_valid(topology, settings)
    if form is options.Format.TABLE:
        print(_valid(lab))
        emit_sizing(lab, options.Format.TABLE)
    else:
        emit_file_sizing(lab, form)


def _validate_designs(
    topologies: Sequence[str | None],
    settings: Sequence[str],
    prices: Path | None,
    form: options.Format,
    refused: _Refusals,
    *,
    several: bool,
    alone: bool,
) -> list[Any]:
    """Print designs beside each other. Where JSON is to hold scenarios, too, its documents are returned instead."""
    from testbed.cli.labs.design_table import DesignColumn, emit_designs, warn_of_missing_prices

    price_list: PriceList | None = None
    if prices is not None:
        from testbed.lab.core.schema.prices import load_prices

        if not topologies:
            raise TestbedError(
                "--prices: there is no topology whose parts could be priced", hint="name a topology file"
            )
        price_list = load_prices(prices)
    columns: list[DesignColumn] = []
    for topology in topologies:
        with refused.kept():
            lab = _read_valid(topology, settings)  # one after the other, so that only one of them is held
            columns.append(_column(lab, price_list))
            if form is options.Format.TABLE:
                print(_valid(lab))
    if price_list is not None:
        warn_of_missing_prices(columns, price_list)
    if form is options.Format.JSON and not alone:
        return [column.document for column in columns]
    if columns or (several and form is options.Format.JSON):
        emit_designs(columns, form, several=several)
    return []


def _column(lab: "Lab", prices: "PriceList | None") -> "DesignColumn":
    from testbed.cli.labs.design_table import DesignColumn
    from testbed.cli.labs.sizing import describe_figures
    from testbed.lab.core.fabric.figures.design import measure_designs

    figures = measure_designs(lab, prices)
    document = {"file": lab.source, **describe_figures(lab, figures)}
    return DesignColumn(file=lab.source or lab.name, figures=figures, document=document)


def _valid(lab: "Lab") -> str:
    from testbed.lab.core.model import whole_lab

    whole = whole_lab(lab)
    layer = ", an InfiniBand back end" if lab.infiniband is not None else ""
    return (
        f"{lab.source or lab.name}: valid: {lab.design or 'hand-written'},"
        f" {len(whole.hosts)} hosts, {len(whole.switches)} switches, {len(whole.links)} links{layer}"
    )


def _read_valid(topology: str | None, settings: Sequence[str]) -> "Lab":
    """Read a topology file. Raises `SpecError` or `PlanError` for what is wrong with it."""
    from testbed.cli.lab_choice import placed_plan_errors, read_topology
    from testbed.lab.core.plan.asn import check_as_numbers
    from testbed.lab.core.plan.lab import check_addresses

    lab = read_topology(topology, None, settings, warn=True)
    with placed_plan_errors(topology, None, settings):
        check_as_numbers(lab)
        if lab.overlay is not None:  # what a tenant's prefix may overlap is known of planned addresses alone
            check_addresses(lab)
        if any(node.startup is not None for node in lab.nodes):
            from testbed.lab.core.deploy.configurations import require_configurations

            require_configurations(lab, unless_missing=True)
    return lab


def _validate_scenarios(
    files: list[Path], settings: Sequence[str], form: options.Format, topologies: list[Any], refused: _Refusals
) -> None:
    """Print a line for each scenario, or in another format than the table what `run --dry-run` prints; JSON has the
    documents of `topologies` first."""
    from testbed.cli.scenarios.dry_run import (
        describe_sweep,
        foresee,
        is_too_large,
        print_dry_run,
        scales_to_foresee,
        warn_too_large,
        warnings_of,
    )
    from testbed.cli.scenarios.named_files import read_sweeps

    sweeps = read_sweeps(files, settings, warn=True, refused=refused.add)
    if form is not options.Format.TABLE:
        print_dry_run(sweeps, form, topologies, refused=refused.add)
        return
    for sweep, scales in zip(sweeps, scales_to_foresee(sweeps), strict=True):
        with refused.kept():
            try:
                points = foresee(sweep, scales)
            except SpecError as error:
                if not is_too_large(error):
                    raise
                print(describe_sweep(sweep))
                warn_too_large(sweep, error)
                continue
            print(describe_sweep(sweep))
            for said in warnings_of(points):
                print(f"{sweep.scenario.source}: warning: {said}", file=sys.stderr)
