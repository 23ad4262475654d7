"""`inspect machines`: the machines of a lab that is over several."""

from testbed.base.errors import LabNotFound
from testbed.cli.machine.over import spread_named
from testbed.cli.options import Format
from testbed.cli.output import emit


def inspect_machines(name: str | None, form: Format) -> None:
    """Show the machines of a lab, how its part on each is, and which others each hears. Raises `LabNotFound`."""
    record = spread_named(["inspect", "machines", *(() if name is None else ("-n", name))])
    if record is None:
        which = "no lab" if name is None else f"no lab named {name}"
        raise LabNotFound(f"{which} is over several machines", hint="deploy --over ssh://user@a,ssh://user@b")
    from testbed.api.pool.over.live import PartRow, machine_rows

    emit(machine_rows(record), PartRow, form)
