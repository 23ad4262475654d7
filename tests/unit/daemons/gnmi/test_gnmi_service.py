"""A gNMI target over a real connection: TLS, the password, all calls, and whoever asks for what is not there."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.linux.port_counters import PortCounters
from testbed.daemons.gnmi.configuration import (
    ACCOUNT,
    PASSWORD_FILE,
    TargetPort,
    TargetSwitch,
    certificate_file,
    key_file,
)
from testbed.lab.core.model.management import ManagementService
from testbed.lab.features.management.services.gnmi import SERVICE, credentials
from testbed.lab.features.management.services.service import CountedPort, Surroundings

grpc = pytest.importorskip("grpc", reason="pip install 'testbed[gnmi]'")
gnmi_pb2 = pytest.importorskip("pygnmi.spec.v080.gnmi_pb2", reason="pip install 'testbed[gnmi]'")
gnmi_pb2_grpc = pytest.importorskip("pygnmi.spec.v080.gnmi_pb2_grpc", reason="pip install 'testbed[gnmi]'")
service = pytest.importorskip("testbed.daemons.gnmi.service")

WAIT_S = 20.0
ADDRESS = IPv4Address("127.0.0.1")
STATUS = ("interfaces", "interface", "state", "oper-status")
OCTETS = ("interfaces", "interface", "state", "counters", "in-octets")


class Counting:
    """Readings that a test changes."""

    def __init__(self) -> None:
        self.counters = {"uplink1": PortCounters(rx_bytes=1), "down1": PortCounters()}
        self.interfaces = SimpleNamespace(get=lambda: self.counters)
        self.queues = SimpleNamespace(get=dict)
        self.neighbors = SimpleNamespace(get=dict)


class Target:
    """A target, and whoever asks it."""

    def __init__(self, directory: Path, password: str) -> None:
        names = ("uplink1", "down1")
        ports = tuple(TargetPort(name=name, ifindex=7, namespace="", mtu_bytes=9216) for name in names)
        switch = TargetSwitch(name="leaf1", namespace="", address=ADDRESS, daemons=None, ports=ports)
        self.readings = Counting()
        self.password = password
        self.service = service.GnmiService(switch, self.readings, password)
        self._server = grpc.server(ThreadPoolExecutor(4), maximum_concurrent_rpcs=4)
        gnmi_pb2_grpc.add_gNMIServicer_to_server(self.service, self._server)
        key, certificate = (directory / name("leaf1") for name in (key_file, certificate_file))
        secure = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
        self._port = self._server.add_secure_port(f"{ADDRESS}:0", secure)
        self._server.start()
        self._authority = (directory / "ca.pem").read_bytes()
        self._channels = [self._channel(self._authority)]

    def _channel(self, authority: bytes) -> Any:
        return grpc.secure_channel(f"{ADDRESS}:{self._port}", grpc.ssl_channel_credentials(authority))

    def trusting(self, authority: bytes) -> Any:
        self._channels.append(self._channel(authority))
        return gnmi_pb2_grpc.gNMIStub(self._channels[-1])

    @property
    def stub(self) -> Any:
        return gnmi_pb2_grpc.gNMIStub(self._channels[0])

    @property
    def options(self) -> dict[str, Any]:
        return {"metadata": (("username", ACCOUNT), ("password", self.password)), "timeout": WAIT_S}

    def get(self, *paths: Any, **more: Any) -> Any:
        return self.stub.Get(gnmi_pb2.GetRequest(path=paths, **more), **self.options)

    def subscribe(self, requests: Any) -> Any:
        return self.stub.Subscribe(requests, **self.options)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._server.stop(0).wait()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    SERVICE.prepare(surroundings(tmp_path))
    directory = credentials(surroundings(tmp_path))
    found = Target(directory, (directory / PASSWORD_FILE).read_text())
    yield found
    found.close()


def surroundings(run: Path) -> Surroundings:
    port = CountedPort(
        node="leaf1",
        name="uplink1",
        ifindex=7,
        namespace="lab-leaf1",
        network="backend",
        rate_bps=20_000_000,
        line_rate_bps=400_000_000_000,
        mtu_bytes=9216,
        number=3,
        classes=((0, "bulk"),),
    )
    return Surroundings(
        lab="lab",
        server="mgmt1",
        network=IPv4Network("192.168.0.0/24"),
        addresses={"leaf1": ADDRESS},
        macs={},
        interfaces={},
        data_ports={},
        routing=frozenset({"leaf1"}),
        hosts={},
        switches=("leaf1",),
        switchable=frozenset(),
        services={"gnmi": ManagementService(name="gnmi")},
        namespaces={"leaf1": "lab-leaf1"},
        run=run,
        ports=(port,),
    )


def path(*names: str, **keys: str) -> Any:
    """A path; `name` is the key of the interface, the second element."""
    elements = [gnmi_pb2.PathElem(name=name, key=keys if name == "interface" else {}) for name in names]
    return gnmi_pb2.Path(elem=elements)


def subscriptions(mode: int, *items: Any, **more: Any) -> Any:
    wanted = gnmi_pb2.SubscriptionList(mode=mode, subscription=items, **more)
    return gnmi_pb2.SubscribeRequest(subscribe=wanted)


def updates_of(message: Any) -> dict[str, Any]:
    """The values by the interface and the name of their leaf."""
    found = {}
    for update in message.update.update:
        value = update.val
        kind = value.WhichOneof("value")
        told = json.loads(getattr(value, kind)) if kind.startswith("json") else getattr(value, kind)
        found[f"{update.path.elem[1].key['name']}:{update.path.elem[-1].name}"] = told
    return found


def code_of(call: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


def test_capabilities_have_models_encodings_and_version(target: Target) -> None:
    said = target.stub.Capabilities(gnmi_pb2.CapabilityRequest(), **target.options)
    assert said.gNMI_version == "0.8.0"
    assert {model.name for model in said.supported_models} >= {"openconfig-interfaces", "openconfig-qos"}
    assert list(said.supported_encodings) == [gnmi_pb2.JSON, gnmi_pb2.JSON_IETF, gnmi_pb2.PROTO]


@pytest.mark.parametrize(
    ("encoding", "field", "octets"),
    [("JSON", "json_val", 1), ("JSON_IETF", "json_ietf_val", "1"), ("PROTO", "uint_val", 1)],
)
def test_a_leaf_is_had_in_every_encoding(target: Target, encoding: str, field: str, octets: Any) -> None:
    said = target.get(path(*OCTETS, name="uplink1"), encoding=getattr(gnmi_pb2, encoding))
    (notification,) = said.notification
    (update,) = notification.update
    assert update.val.WhichOneof("value") == field
    assert updates_of(SimpleNamespace(update=notification)) == {"uplink1:in-octets": octets}
    assert notification.timestamp > 1_700_000_000_000_000_000


def test_all_entries_of_a_list_are_had_by_no_key_and_by_a_prefix(target: Target) -> None:
    said = target.get(path(*STATUS))
    assert updates_of(SimpleNamespace(update=said.notification[0])) == {
        "uplink1:oper-status": "UP", "down1:oper-status": "UP",
    }  # fmt: skip
    prefix = path("interfaces")
    prefix.target = "leaf1"
    said = target.get(path("interface", "state", "oper-status", name="down1"), prefix=prefix)
    assert updates_of(SimpleNamespace(update=said.notification[0])) == {"down1:oper-status": "UP"}
    assert said.notification[0].prefix.target == "leaf1"


def test_no_configuration_is_there_to_be_read_or_set(target: Target) -> None:
    said = target.get(path("interfaces"), type=gnmi_pb2.GetRequest.CONFIG)
    assert [len(one.update) for one in said.notification] == [0]
    request = gnmi_pb2.SetRequest()
    getattr(request, "delete").append(path("interfaces"))  # noqa: B009
    assert code_of(lambda: target.stub.Set(request, **target.options)) is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (lambda: {"path": [path("interfaces", "interface", name="uplink9")]}, "NOT_FOUND"),
        (lambda: {"path": [path("nothing")]}, "NOT_FOUND"),
        (lambda: {"path": [path("")]}, "INVALID_ARGUMENT"),
        (lambda: {"path": [path(*["interfaces"] * 40)]}, "INVALID_ARGUMENT"),
        (lambda: {"path": [path("interfaces")] * 65}, "INVALID_ARGUMENT"),
        (lambda: {"path": [gnmi_pb2.Path(origin="cli")]}, "INVALID_ARGUMENT"),
        (lambda: {"path": [path("interfaces")], "encoding": gnmi_pb2.ASCII}, "UNIMPLEMENTED"),
    ],
)
def test_what_cannot_be_answered_is_refused(target: Target, request_of: Any, code: str) -> None:
    request = gnmi_pb2.GetRequest(**request_of())
    assert code_of(lambda: target.stub.Get(request, **target.options)) is getattr(grpc.StatusCode, code)


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("username", ACCOUNT), ("password", "wrong")),
        (("username", "root"), ("password", None)),
        (("username", ACCOUNT),),
    ],
)
def test_nobody_is_answered_without_the_password(target: Target, metadata: tuple[tuple[str, str | None], ...]) -> None:
    told = tuple((key, value if value is not None else target.password) for key, value in metadata)
    options = {"metadata": told, "timeout": WAIT_S}
    for call in (
        lambda: target.stub.Capabilities(gnmi_pb2.CapabilityRequest(), **options),
        lambda: target.stub.Get(gnmi_pb2.GetRequest(), **options),
        lambda: target.stub.Set(gnmi_pb2.SetRequest(), **options),
        lambda: list(target.stub.Subscribe(iter([subscriptions(gnmi_pb2.SubscriptionList.ONCE)]), **options)),
    ):
        assert code_of(call) is grpc.StatusCode.UNAUTHENTICATED
    assert target.service.calls == 0


def test_a_client_that_trusts_another_authority_does_not_talk_to_it(target: Target, tmp_path: Path) -> None:
    SERVICE.prepare(surroundings(tmp_path / "other"))
    other = (credentials(surroundings(tmp_path / "other")) / "ca.pem").read_bytes()
    stub = target.trusting(other)
    assert code_of(lambda: stub.Capabilities(gnmi_pb2.CapabilityRequest(), **target.options)) is (
        grpc.StatusCode.UNAVAILABLE
    )


def test_once_sends_all_and_ends(target: Target) -> None:
    request = subscriptions(
        gnmi_pb2.SubscriptionList.ONCE, gnmi_pb2.Subscription(path=path(*STATUS)), encoding=gnmi_pb2.PROTO
    )
    first, last = target.subscribe(iter([request]))
    assert updates_of(first) == {"uplink1:oper-status": "UP", "down1:oper-status": "UP"}
    assert last.sync_response


class Requests:
    """What a client sends, one after the other, until it ends."""

    def __init__(self, *first: Any) -> None:
        self._queue: Queue[Any] = Queue()
        for item in first:
            self.send(item)

    def send(self, item: Any) -> None:
        self._queue.put(item)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._queue.get, None)


def test_a_poll_is_answered_with_what_is_then(target: Target) -> None:
    item = gnmi_pb2.Subscription(path=path(*STATUS, name="uplink1"))
    requests = Requests(subscriptions(gnmi_pb2.SubscriptionList.POLL, item, encoding=gnmi_pb2.PROTO))
    responses = target.subscribe(iter(requests))
    assert updates_of(next(responses)) == {"uplink1:oper-status": "UP"}
    assert next(responses).sync_response
    target.readings.counters["uplink1"] = PortCounters(up=False)
    requests.send(gnmi_pb2.SubscribeRequest(poll=gnmi_pb2.Poll()))
    assert updates_of(next(responses)) == {"uplink1:oper-status": "DOWN"}
    assert next(responses).sync_response
    requests.send(None)
    assert list(responses) == []


def test_a_stream_tells_changes_and_samples(target: Target) -> None:
    items = (
        gnmi_pb2.Subscription(path=path(*STATUS, name="uplink1"), mode=gnmi_pb2.ON_CHANGE),
        gnmi_pb2.Subscription(path=path(*OCTETS, name="down1"), mode=gnmi_pb2.SAMPLE, sample_interval=150_000_000),
    )
    requests = Requests(subscriptions(gnmi_pb2.SubscriptionList.STREAM, *items, encoding=gnmi_pb2.PROTO))
    responses = target.subscribe(iter(requests))
    assert updates_of(next(responses)) == {"uplink1:oper-status": "UP", "down1:in-octets": 0}
    assert next(responses).sync_response
    assert updates_of(next(responses)) == {"down1:in-octets": 0}, "a sample, though it is the same"
    target.readings.counters["uplink1"] = PortCounters(up=False)
    told = next(found for message in responses if "uplink1:oper-status" in (found := updates_of(message)))
    assert told["uplink1:oper-status"] == "DOWN"
    del target.readings.counters["uplink1"]
    gone = next(message for message in responses if getattr(message.update, "delete"))  # noqa: B009
    (where,) = getattr(gone.update, "delete")  # noqa: B009
    assert where.elem[-1].name == "oper-status"
    responses.cancel()
    requests.send(None)


def test_a_stream_ends_with_its_subscriber(target: Target) -> None:
    before = threading.active_count()
    item = gnmi_pb2.Subscription(path=path(*STATUS), mode=gnmi_pb2.ON_CHANGE)
    for _ in range(8):  # twice as many as are served at once
        requests = Requests(subscriptions(gnmi_pb2.SubscriptionList.STREAM, item))
        responses = target.subscribe(iter(requests))
        while not next(responses).sync_response:
            pass
        responses.cancel()
        requests.send(None)
        until_served(target)
    assert threading.active_count() <= before + 8


@pytest.mark.parametrize("there", [True, False])
def test_a_stream_is_told_that_its_subscriber_went(there: bool, target: Target) -> None:
    """Its next sample is due in an hour. A fake context: it has nothing by which to look at a subscriber."""
    item = gnmi_pb2.Subscription(path=path(*OCTETS, name="down1"), mode=gnmi_pb2.SAMPLE, sample_interval=3600 * 10**9)
    subscribed = subscriptions(gnmi_pb2.SubscriptionList.STREAM, item).subscribe
    told: list[Callable[[], None]] = []

    def add_callback(callback: Callable[[], None]) -> bool:
        told.append(callback)
        return there

    context = SimpleNamespace(add_callback=add_callback)
    wanted = [service._wanted(subscribed, item, context)]
    stream = target.service._stream(subscribed, wanted, gnmi_pb2.PROTO, context)
    if there:
        assert [message.sync_response for message in islice(stream, 2)] == [False, True]
    serving = threading.Thread(target=list, args=(stream,), daemon=True)
    serving.start()
    if there:
        told[0]()
    serving.join(WAIT_S)
    assert not serving.is_alive()


def until_served(target: Target) -> None:
    """Wait until a call is served again: a stream is told that its subscriber is gone."""
    while True:
        try:
            target.get(path(*STATUS))
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            return


@pytest.mark.parametrize(
    ("requests", "code"),
    [
        (list, "INVALID_ARGUMENT"),
        (lambda: [gnmi_pb2.SubscribeRequest(poll=gnmi_pb2.Poll())], "INVALID_ARGUMENT"),
        (lambda: [subscriptions(gnmi_pb2.SubscriptionList.ONCE)], "INVALID_ARGUMENT"),
        (lambda: [subscriptions(gnmi_pb2.SubscriptionList.ONCE, encoding=gnmi_pb2.BYTES)], "UNIMPLEMENTED"),
    ],
)
def test_a_subscription_of_nothing_is_refused(target: Target, requests: Any, code: str) -> None:
    assert code_of(lambda: list(target.subscribe(iter(requests())))) is getattr(grpc.StatusCode, code)


def test_credentials_are_for_root_alone_and_stay_over_a_restart(tmp_path: Path) -> None:
    lab = surroundings(tmp_path)
    SERVICE.prepare(lab)
    directory = credentials(lab)
    assert directory.stat().st_mode & 0o077 == 0
    secrets = {name: (directory / name).read_bytes() for name in (PASSWORD_FILE, "ca.key", "ca.pem")}
    assert all((directory / name).stat().st_mode & 0o077 == 0 for name in (PASSWORD_FILE, "ca.key", key_file("leaf1")))
    SERVICE.prepare(lab)
    assert {name: (directory / name).read_bytes() for name in secrets} == secrets
    assert SERVICE.for_people(lab) == {"gnmi-ca.pem": secrets["ca.pem"].decode()}
