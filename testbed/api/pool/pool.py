"""A pool of machines that runs sweeps: opened once, and closed when all is run.

with Pool.open("ssh://root@lab1,ssh://root@lab2", Backend.SIMULATION) as pool:
    run_scenario("scenarios/incast-ladder.yml", options=RunOptions(backend=Backend.SIMULATION, pool=pool))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from testbed.api.pool.about import AboutMachine, about_this_machine, differences
from testbed.api.pool.file import PoolMachine
from testbed.api.pool.machines import MachineAtWork
from testbed.api.pool.parcel import pack_sweep
from testbed.api.pool.reached import ReachedMachines
from testbed.base.errors import ScenarioError, TestbedError
from testbed.record.record import Backend, Environment
from testbed.run.simulated.support import check_supported
from testbed.run.sweep.points import Sweep
from testbed.run.sweep.progress import ProgressListener, ignore_progress
from testbed.run.sweep.runner import RecordOptions, SweepOutcome

if TYPE_CHECKING:
    from testbed.api.pool.at_work import MachinesAtWork


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFound:
    """A machine as it was found: what it is, or the error that says why nobody knows; and what is wrong with it."""

    machine: PoolMachine
    about: AboutMachine | None = None
    problem: str = ""
    different: Sequence[str] = ()
    """The ways in which it would not do the same as this machine."""

    @property
    def needs(self) -> Sequence[str]:
        """Return what the file of the pool asks of it and it cannot do."""
        if self.about is None or not self.machine.emulation:
            return ()
        if not self.about.root:
            return ("labs need root, and it is not",)
        return () if self.about.can_deploy else (f"labs cannot be deployed there: no {', '.join(self.about.lacks)}",)


class Pool:
    """Machines that run the points of sweeps. A context: nothing of ours is left on them when it ends."""

    def __init__(self, crew: MachinesAtWork, backend: Backend, environment: Environment) -> None:
        """`environment` is that of this machine."""
        self._crew = crew
        self._backend = backend
        self._environment = environment

    @classmethod
    def open(cls, text: str, backend: Backend, *, force: bool = False) -> Self:
        """Reach all machines and start their stations. `text` is a file, or targets with commas between them.

        Raises `SpecError` for a file that is wrong, and `TestbedError`, before anything runs, that names every machine
        that cannot be reached, cannot do this, or is of another version; with `force` that is allowed to emulate.
        """
        with ReachedMachines(text, backend.value) as reached:
            return cls.of(reached, backend, force=force)

    @classmethod
    def of(cls, reached: ReachedMachines, backend: Backend, *, force: bool = False) -> Self:
        """Make a pool of machines that are being reached for this backend. Raises as `open`."""
        from testbed.api.pool.at_work import MachinesAtWork  # it takes about as long as to reach the machines

        machines = reached.machines
        crew = MachinesAtWork(machines, backend)
        reached.take()
        try:
            own = about_this_machine(probed=False)
            found = look_at(machines, own)
            _give_seats(found, machines, reached.text, backend, force=force)
            crew.start()
        except BaseException:
            crew.let_go()
            raise
        return cls(crew, backend, own.environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.__exit__()

    def tell(self, warn: Callable[[str], None]) -> None:
        """Have a listener told of machines that are lost."""
        self._crew.warn = warn

    def run(
        self,
        sweep: Sweep,
        backend: Backend,
        options: RecordOptions,
        on_progress: ProgressListener = ignore_progress,
        *,
        timeout_s: float,
    ) -> SweepOutcome:
        """Run every point of a sweep, and judge the whole; routing of labs has `timeout_s` (s) to converge.

        Raises `ScenarioError` for what a pool cannot run.
        """
        if backend is not self._backend:
            raise ScenarioError(f"this pool was opened for {self._backend.value}, not for {backend.value}")
        if options.prove_scale:
            raise ScenarioError("--prove-scale: not on a pool", hint="--on proves it on one machine")
        simulated = backend is Backend.SIMULATION
        if simulated:
            check_supported(sweep)
        else:
            from testbed.run.programs.needs import check_needs

            check_needs(sweep)
        archive, order = pack_sweep(sweep)
        self._crew.begin(archive, order.parcel)
        if simulated:
            from testbed.api.pool.runs import PooledRuns
            from testbed.run.simulated.sweep import run_simulated

            return run_simulated(
                sweep,
                options,
                on_progress,
                runner_of=lambda points, on_share: PooledRuns(self._crew, order, points, on_share),
                environment=self._environment,
            )
        from testbed.api.pool.labs import run_on_labs_of

        return run_on_labs_of(self._crew, order, sweep, options, on_progress, timeout_s=timeout_s)


def look_at(machines: Sequence[MachineAtWork], own: AboutMachine) -> list[MachineFound]:
    """Hear what all machines are, which are being reached, and compare them with this one."""

    def look(machine: MachineAtWork) -> MachineFound:
        try:
            about = machine.ask()
        except TestbedError as error:
            return MachineFound(machine=machine.machine, problem=error.message)
        return MachineFound(machine=machine.machine, about=about, different=differences(own, about))

    return [look(machine) for machine in machines]


def _give_seats(
    found: Sequence[MachineFound], machines: Sequence[MachineAtWork], text: str, backend: Backend, *, force: bool
) -> None:
    """Give every machine its seats. Raises `TestbedError` where one cannot take part, or none has any."""
    may_differ = force and backend is Backend.EMULATION
    refused = [line for one in found if (line := _refusal(one, backend, may_differ=may_differ))]
    if refused:
        raise TestbedError(
            "\n".join(["nothing was run, since these machines cannot take part:", *refused]),
            hint=f"testbed pool check {text}",
        )
    for machine in machines:
        machine.seats = seats_of(machine, backend)
    if not any(machine.seats for machine in machines):
        raise TestbedError(
            f"no machine of the pool does any {backend.value}", hint="its file says how many runs each does"
        )


def seats_of(machine: MachineAtWork, backend: Backend) -> int:
    """Return the number of runs that a machine does at once."""
    assert machine.about is not None
    wanted = machine.machine
    if backend is Backend.SIMULATION:
        return machine.about.cores if wanted.simulation is None else wanted.simulation
    return int(machine.about.root if wanted.emulation is None else wanted.emulation)


def _refusal(found: MachineFound, backend: Backend, *, may_differ: bool) -> str:
    """Return a line that says why a machine cannot take part; "" where it can."""
    name, about = found.machine.name, found.about
    if about is None:
        return f"  {name}: {found.problem}"
    if found.different and not may_differ:
        return f"  {name} has {'; '.join(found.different)}"
    if backend is Backend.SIMULATION or found.machine.emulation is False:
        return ""
    if found.needs:
        return f"  {name}: {'; '.join(found.needs)}"
    if about.root and not about.can_deploy:
        return f"  {name}: labs cannot be deployed there: no {', '.join(about.lacks)}"
    return ""
