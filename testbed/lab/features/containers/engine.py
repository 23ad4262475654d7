"""Nodes that are Docker containers: an engine on this machine, asked through Docker's own SDK.

A container is made without networks and started; the network namespace that it gets is then a node's like any other
(`testbed.lab.core.drivers.nodes.netns`). Ownership is a label whose value is journalled before the first container is
made: what has it is ours, whatever became of the command that made it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import CapabilityError, DriverError, NameInUse
from testbed.base.installation.extras import extra_missing
from testbed.base.names import namespace_name
from testbed.lab.core.model import NodeKind
from testbed.lab.core.model.containers import HOST_IMAGE, SWITCH_IMAGE, HealthCheck
from testbed.lab.core.plan.operations import StartContainer

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container as DockerContainer

DEFAULT_ENGINE = "unix:///var/run/docker.sock"
TIMEOUT_S = 120.0
ENDING_TIMEOUT_S = 10
"""A container that is restarted and does not end by its signal in this time is killed."""
AT_ONCE = 4
"""Containers started side by side: more only wait for each other in the engine."""
LAST_WISHES_S = 1.5
"""The time for which an engine may still carry out what a command asked of it that was killed meanwhile."""

LABEL = "org.testbed.deployment"
LAB_LABEL = "org.testbed.lab"
NODE_LABEL = "org.testbed.node"

ROOT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
"""The capabilities that programs of root expect inside their container (Docker gives these and seven more)."""
CAPABILITIES: Mapping[NodeKind, tuple[str, ...]] = {
    NodeKind.HOST: (*ROOT, "NET_ADMIN", "NET_RAW"),
    # zebra asks for CAP_SYS_ADMIN at its start and ends without it (FRR lib/privs.c).
    NodeKind.SWITCH: (*ROOT, "NET_ADMIN", "NET_RAW", "SYS_ADMIN"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A directory that a driver, not the user, wants a container to see."""

    source: Path
    target: Path
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedContainer:
    """A container that runs. `pid` is its first process, as seen from here."""

    node: str
    id: str
    pid: int

    @property
    def root(self) -> Path:
        """The root of its file system, which is there as long as it runs."""
        return Path(f"/proc/{self.pid}/root")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """`state` is the engine's word ("running", "exited", ...), `health` "" without a health check."""

    id: str
    state: str
    health: str = ""

    @property
    def word(self) -> str:
        """One word for a table."""
        if self.state != "running":
            return self.state
        return "unhealthy" if self.health == "unhealthy" else "running"


def engine_url() -> str:
    """The engine that $DOCKER_HOST names, or the usual one."""
    return os.environ.get("DOCKER_HOST", "") or DEFAULT_ENGINE


class ContainerEngine:
    """A Docker engine of this machine. Each call raises `DriverError` where the engine refuses."""

    def __init__(self, url: str, client: DockerClient) -> None:
        self.url = url
        self.client = client
        """The SDK's own object."""

    @classmethod
    def connect(cls, url: str | None = None) -> ContainerEngine:
        """Raises `CapabilityError` where no engine answers at `url` (default: `engine_url`), or it is not of here, and
        where Docker's SDK is not installed."""
        try:
            import docker
            from docker.errors import DockerException
            from requests.exceptions import RequestException
        except ModuleNotFoundError as error:
            raise extra_missing("docker", "a node that is a container", error) from error

        url = url or engine_url()
        if not url.startswith("unix://"):
            raise CapabilityError(
                f"$DOCKER_HOST is {url}: links lead into containers of this machine alone",
                missing="a Docker engine on this machine",
                hint=f"unset DOCKER_HOST, or DOCKER_HOST={DEFAULT_ENGINE}",
            )
        try:
            client = docker.DockerClient(
                base_url=url, version="auto", timeout=int(TIMEOUT_S), max_pool_size=AT_ONCE + 2
            )
            client.ping()
        except (DockerException, RequestException, OSError) as error:
            raise CapabilityError(
                f"no Docker engine answers at {url}: {_cause(error)}",
                missing="a Docker engine",
                hint="apt-get install docker.io, and start it; DOCKER_HOST=unix:///... names another one",
            ) from error
        return cls(url, client)

    def close(self) -> None:
        self.client.close()

    def require_images(self, images: Iterable[str]) -> None:
        """Raise `CapabilityError` naming the images that the engine does not have."""
        from docker.errors import ImageNotFound

        missing = []
        for image in sorted(set(images)):
            try:
                with answers(f"image {image}"):
                    self.client.images.get(image)
            except ImageNotFound:
                missing.append(image)
        if missing:
            ours = [image for image in missing if image.partition(":")[0] in (HOST_IMAGE, SWITCH_IMAGE)]
            others = [f"docker pull {image}" for image in missing if image not in ours]
            hint = "; ".join([*(["testbed images build"] if ours else []), *others])
            raise CapabilityError(
                f"the engine at {self.url} has no image {', '.join(missing)}", missing=missing[0], hint=hint
            )

    def require_names(self, names: Iterable[str], *, but: str = "") -> None:
        """Raise `NameInUse` for a container that has one of these names, unless it has the deployment label `but`."""
        with answers("containers"):
            found = self.client.api.containers(all=True)
        wanted = set(names)
        for item in found:
            taken = wanted.intersection(name.lstrip("/") for name in item["Names"] or ())
            if taken and (not but or (item["Labels"] or {}).get(LABEL) != but):
                raise name_in_use(min(taken))

    # ------------------------------------------------------------------ life

    def start(
        self,
        lab: str,
        deployment: str,
        operations: Sequence[StartContainer],
        mounts: Mapping[str, Sequence[Mount]],
        started: Callable[[int], None] = lambda _: None,
    ) -> dict[str, StartedContainer]:
        """Make and start a container for each operation, labelled with `deployment`; `mounts` are by node.

        `started` is told how many run. Raises `NameInUse`, `DriverError` for the first that fails; those that run
        then are the caller's to remove. Nothing is asked of the engine any more once this returns or raises.
        """
        stop = threading.Event()
        found: dict[str, StartedContainer] = {}

        def one(operation: StartContainer) -> None:
            if not stop.is_set():
                found[operation.node] = self._start_one(lab, deployment, operation, mounts.get(operation.node, ()))
                started(len(found))

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="containers") as pool:
            try:
                work = [pool.submit(one, operation) for operation in operations]
                done, _ = wait(work, return_when=FIRST_EXCEPTION)
                for item in done:
                    item.result()
            finally:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
        return found

    def _start_one(
        self, lab: str, deployment: str, operation: StartContainer, mounts: Sequence[Mount]
    ) -> StartedContainer:
        from docker.types import Mount as BindMount

        container, name = operation.container, namespace_name(lab, operation.node)
        binds = [
            BindMount(target=bind.target, source=bind.source, type="bind", read_only=bind.read_only)
            for bind in container.binds
        ]
        binds += [
            BindMount(target=str(item.target), source=str(item.source), type="bind", read_only=item.read_only)
            for item in mounts
        ]
        options: dict[str, Any] = {}
        if container.cpus is not None:
            options["nano_cpus"] = int(container.cpus * 1e9)
        if container.memory_bytes is not None:
            options["mem_limit"] = options["memswap_limit"] = container.memory_bytes
        if container.health_check is not None:
            options["healthcheck"] = _health_option(container.health_check)
        with answers(f"{operation.node}: the engine refuses its container", name):
            made = self.client.containers.create(
                container.image,
                list(container.command) if container.command is not None else None,
                entrypoint=list(container.entrypoint) if container.entrypoint is not None else None,
                name=name,
                hostname=operation.node,
                network_mode="none",
                init=True,  # reaps what commands leave behind
                stdin_open=True,  # an image whose command is a shell waits, where it would end at once
                environment=dict(operation.env),
                mounts=binds,
                cap_drop=["ALL"],
                cap_add=sorted({*CAPABILITIES[operation.kind], *container.capabilities}),
                labels={LABEL: deployment, LAB_LABEL: lab, NODE_LABEL: operation.node},
                **options,
            )
            made.start()
            made.reload()
        return _running(operation.node, made)

    def restart(self, node: str, container: str) -> StartedContainer | None:
        """End a container and start it again, with the files that it has; its network namespace is another one then.

        None where there is no such container any more.
        """
        from docker.errors import NotFound

        try:
            with answers(f"{node}: its container cannot be restarted", gone=True):
                found = self.client.containers.get(container)
                found.restart(timeout=ENDING_TIMEOUT_S)
                found.reload()
        except NotFound:
            return None
        return _running(node, found)

    def remove(self, deployment: str, *, unfinished: bool = False, only: Collection[str] | None = None) -> int:
        """End and remove every container labelled with `deployment`, or those of some nodes `only`; how many.

        `unfinished`: whoever made them was killed meanwhile, and the engine may still be making one.
        """
        since = time.time()
        removed = self._remove_listed(deployment, only)
        if unfinished:
            for _ in self._events(deployment, ["create"], since, since + LAST_WISHES_S):
                removed += self._remove_listed(deployment, only)
            removed += self._remove_listed(deployment, only)
        return removed

    def _remove_listed(self, deployment: str, only: Collection[str] | None) -> int:
        from docker.errors import NotFound

        found = [item for item in self._list(deployment) if only is None or _node_of(item) in only]

        def one(container: DockerContainer) -> None:
            # Gone already, or somebody else is removing it: the next look tells.
            with contextlib.suppress(NotFound), answers(f"{container.name}: cannot be removed", gone=True):
                container.remove(force=True, v=True)

        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="containers") as pool:
            for item in [pool.submit(one, container) for container in found]:
                item.result()
        return len(found)

    def _list(self, deployment: str, **filters: str) -> list[DockerContainer]:
        with answers("containers"):
            wanted: dict[str, Any] = {"label": f"{LABEL}={deployment}", **filters}
            return list(self.client.containers.list(all=True, filters=wanted, ignore_removed=True, sparse=True))

    def require_alive(self, started: Iterable[StartedContainer]) -> None:
        """Raise `DriverError` for the first of these containers that has ended, with what it said."""
        for item in started:
            if not Path(f"/proc/{item.pid}").exists():
                with answers(f"{item.node}: its container"):
                    container = self.client.containers.get(item.id)
                    container.wait(timeout=TIMEOUT_S)  # the engine may be the last to know
                    container.reload()
                raise _ended(item.node, container)

    # ------------------------------------------------------------------ looking

    def states(self, deployment: str) -> dict[str, ContainerState]:
        """Each container by its node, asked in a few questions however many there are."""
        ill = {container.id for container in self._list(deployment, health="unhealthy")}
        starting = {container.id for container in self._list(deployment, health="starting")}
        found = {}
        for item in self._list(deployment):
            health = "unhealthy" if item.id in ill else "starting" if item.id in starting else ""
            state = str(item.attrs["State"])
            found[_node_of(item)] = ContainerState(id=str(item.id), state=state, health=health)
        return found

    def wait_healthy(self, deployment: str, deadline: float, only: Collection[str] | None = None) -> None:
        """Return when every container with a health check is healthy, or those of some nodes `only` are.

        `deadline` is on the monotonic clock.

        Raises `DriverError` for one that is unhealthy, has ended, or is still starting at the deadline.
        """
        while True:
            since = time.time()
            states = self.states(deployment)
            states = {node: state for node, state in states.items() if only is None or node in only}
            for node, state in states.items():
                if state.word != "running":
                    raise DriverError(f"{node}: its container is {state.word}{self._last_words(state)}")
            waiting = sorted(node for node, state in states.items() if state.health == "starting")
            if not waiting:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise DriverError(f"{', '.join(waiting)}: not healthy in time{self._last_words(states[waiting[0]])}")
            # Woken by any change of health or any end; seldom, too, in case the engine forgets to tell.
            next(self._events(deployment, ["health_status", "die"], since, time.time() + min(left, 2.0)), None)

    def _events(self, deployment: str, kinds: list[str], since_s: float, until_s: float) -> Iterator[object]:
        """Events of these kinds, as they happen and from the past, between two times of the clock."""
        filters = {"label": f"{LABEL}={deployment}", "event": kinds}
        events: Any = self.client.events  # takes fractions of a second, too
        with answers("events"):
            yield from events(since=f"{since_s:.9f}", until=f"{until_s:.9f}", filters=filters)

    def _last_words(self, state: ContainerState) -> str:
        """Return what its health check said, or else what it printed, to end a message with."""
        with contextlib.suppress(DriverError), answers("inspect"):
            container = self.client.containers.get(state.id)
            log = container.attrs["State"].get("Health", {}).get("Log") or []
            said = log[-1]["Output"] if log else container.logs(tail=5).decode(errors="replace")
            if said.strip():
                return f": {said.strip()}"
        return ""

    def logs(self, container: str, *, follow: bool) -> Iterator[bytes]:
        """Return what the container's own process printed, in pieces; with `follow` until it ends, too."""
        with answers("logs"):
            yield from self.client.containers.get(container).logs(stream=True, follow=follow)

    def run(self, container: str, argv: Sequence[str]) -> tuple[int, str]:
        """Run a command in a container to its end: its status, and what it printed."""
        with answers(f"exec {argv[0]}"):
            api: Any = self.client.api
            command = api.exec_create(container, list(argv))["Id"]
            output: bytes = api.exec_start(command)
            return int(api.exec_inspect(command)["ExitCode"]), output.decode(errors="replace")


def _node_of(container: DockerContainer) -> str:
    """The node of a listed container of ours."""
    return str(container.attrs["Labels"][NODE_LABEL])


def _running(node: str, container: DockerContainer) -> StartedContainer:
    """A container that was started, if it is there and of this machine."""
    state = container.attrs["State"]
    pid = int(state["Pid"])
    if not state["Running"] or not pid:
        raise _ended(node, container)
    try:
        # Its files are mounted from a directory of its name: so it is our kernel's, and not that of a VM.
        ours = str(container.id) in Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        ours = False
        with contextlib.suppress(DriverError), answers(f"{node}: its container"):
            container.wait(timeout=LAST_WISHES_S)
            container.reload()
            ours = True
        if ours:
            raise _ended(node, container) from None
    if not ours:
        raise DriverError(
            f"{node}: its container does not run on this machine's kernel",
            operation="start",
            hint="links need Docker Engine here, without a virtual machine around it",
        )
    return StartedContainer(node=node, id=str(container.id), pid=pid)


def _ended(node: str, container: DockerContainer) -> DriverError:
    """That a container, as last looked at, ended where it should run on."""
    with answers(f"{node}: logs"):
        said = container.logs(tail=5).decode(errors="replace").strip()
    status = container.attrs["State"]["ExitCode"]
    return DriverError(
        f"{node}: its container ended at once with status {status}" + (f": {said}" if said else ""),
        operation="start",
        hint="cmd: sleep infinity keeps an image alive that has nothing to do",
    )


def _health_option(check: HealthCheck) -> dict[str, Any]:
    option: dict[str, Any] = {
        "test": ["CMD", *check.test],
        "interval": check.interval.ns,
        "timeout": check.timeout.ns,
        "retries": check.retries,
    }
    if check.start_period is not None:
        option["start_period"] = check.start_period.ns
    return option


def name_in_use(name: str) -> NameInUse:
    """The error for a container that has the name of one of ours."""
    return NameInUse(
        f"a container {name} exists and is not ours",
        hint=f"choose another lab name (-n), or remove it with `docker rm -f {name}`",
    )


@contextmanager
def answers(what: str, name: str = "", *, gone: bool = False) -> Iterator[None]:
    """Docker's errors as ours. `name`: a conflict is about that name. `gone`: NotFound and a removal under way pass."""
    from docker.errors import APIError, DockerException, ImageNotFound, NotFound
    from requests.exceptions import RequestException

    try:
        yield
    except ImageNotFound:
        raise
    except NotFound as error:
        if gone:
            raise
        raise DriverError(f"{what}: {_cause(error)}", operation=what) from error
    except APIError as error:
        if error.status_code == 409 and name and "already in use" in _cause(error):
            raise name_in_use(name) from error
        if gone and error.status_code == 409:
            return
        raise DriverError(f"{what}: {_cause(error)}", operation=what) from error
    except (DockerException, RequestException, OSError) as error:
        raise DriverError(f"{what}: the engine does not answer: {_cause(error)}", operation=what) from error


def _cause(error: BaseException) -> str:
    """Return what an error of Docker's SDK is about, without the layers around it."""
    explanation = getattr(error, "explanation", None)
    if explanation:
        return str(explanation).strip()
    innermost = error
    while (inner := innermost.__cause__ or innermost.__context__) is not None:
        innermost = inner
    return os.strerror(innermost.errno) if isinstance(innermost, OSError) and innermost.errno else str(innermost)
