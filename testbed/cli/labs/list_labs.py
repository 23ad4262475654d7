"""The verb `list`."""

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import command

COLUMNS = ("name", "state", "design", "hosts", "switches", "links", "k", "created", "topology")


@command("list")
@options.format_option
def list_labs(format: options.Format) -> None:
    """List the labs of this machine."""
    from testbed.cli.output import emit_rows
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.records.state import StateDirectory
    from testbed.lab.features.scale_up.watch_switches import dead_domains

    state = StateDirectory()
    rows = []
    for name in state.names():
        try:
            lab = RunningLab.open(name, state)
            model = lab.model
            statuses = {status.state for status in lab.status()}
            dead = dead_domains(lab.plan, state.run_directory(name))
            degraded = "" if statuses <= {"running"} and not dead else "degraded"
            rows.append(
                {
                    "name": name,
                    "state": degraded or (lab.life_cycle.value if lab.life_cycle else "unknown"),
                    "design": model.design or "hand-written",
                    "hosts": len(model.hosts),
                    "switches": len(model.switches),
                    "links": len(model.links),
                    "k": lab.record.k,
                    "created": lab.record.created,
                    "topology": lab.record.source,
                }
            )
        except TestbedError:  # gone meanwhile, never completed, or another version's: `destroy` knows it
            rows.append({"name": name, "state": "unknown"})
    emit_rows(rows, COLUMNS, format)
