"""gNMI 0.8.0 for one switch: Capabilities, Get and Subscribe. Set is not there, for a lab is what its file says.

Messages and stubs are pygnmi's. Whoever asks gives the lab's name and password as metadata of each call, as clients of
switches do (`username`, `password`), over TLS alone.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

from testbed.daemons.gnmi.configuration import ACCOUNT, TargetSwitch
from testbed.daemons.gnmi.paths import MAX_ELEMENTS, PathError, TreePath, covers, element, path_text
from testbed.daemons.gnmi.readings import SwitchReadings
from testbed.daemons.gnmi.subscriptions import Stream, WantedPath, When
from testbed.daemons.gnmi.tree import MODELS, Leaves, Scalar, read_leaves
from testbed.daemons.gnmi.values import scalar_json, subtrees

VERSION = "0.8.0"
ENCODINGS = (gnmi_pb2.JSON, gnmi_pb2.JSON_IETF, gnmi_pb2.PROTO)
MOST_PATHS = 64
"""The most paths that one request may name."""
_MODES = {
    gnmi_pb2.TARGET_DEFINED: When.TARGET_DEFINED,
    gnmi_pb2.ON_CHANGE: When.ON_CHANGE,
    gnmi_pb2.SAMPLE: When.SAMPLE,
}


class GnmiService(gnmi_pb2_grpc.gNMIServicer):  # type: ignore[misc]  # pygnmi has no types
    """One switch as a target."""

    def __init__(self, switch: TargetSwitch, readings: SwitchReadings, password: str) -> None:
        self._switch = switch
        self._readings = readings
        self._password = password
        self._lock = threading.Lock()
        self.calls = 0
        """The number of requests answered or begun, of those who gave the right password."""

    def _authenticate(self, context: Any) -> None:
        """End the call of who does not give the account and its password."""
        told = dict(context.invocation_metadata() or ())
        name, password = (str(told.get(key, "")).encode() for key in ("username", "password"))
        right = hmac.compare_digest(name, ACCOUNT.encode())
        if not hmac.compare_digest(password, self._password.encode()) or not right:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the name or the password is wrong")
        with self._lock:
            self.calls += 1

    def _read(self, patterns: Sequence[TreePath]) -> Leaves:
        return read_leaves(self._switch, self._readings, tuple(patterns))

    def Capabilities(self, request: Any, context: Any) -> Any:  # noqa: N802  # gNMI's name
        """Tell the models, encodings and version."""
        self._authenticate(context)
        models = [gnmi_pb2.ModelData(name=name, organization=by, version=version) for name, by, version in MODELS]
        return gnmi_pb2.CapabilityResponse(supported_models=models, supported_encodings=ENCODINGS, gNMI_version=VERSION)

    def Set(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse to change anything: the targets are read alone."""
        self._authenticate(context)
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "this target is read only: a lab is what its file says")

    def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return what each path means, as one notification."""
        self._authenticate(context)
        encoding = _encoding(request.encoding, context)
        asked = [_pattern(request.prefix, path, context) for path in _few(request.path, context)]
        asked = asked or [_pattern(request.prefix, gnmi_pb2.Path(), context)]
        leaves = {} if request.type == gnmi_pb2.GetRequest.CONFIG else self._read(asked)
        notifications = []
        for pattern in asked:
            updates = [
                gnmi_pb2.Update(path=_message(place), val=value) for place, value in _values(leaves, pattern, encoding)
            ]
            if not updates and request.type != gnmi_pb2.GetRequest.CONFIG:
                context.abort(grpc.StatusCode.NOT_FOUND, f"there is no {path_text(pattern)}")
            notifications.append(_notification(request.prefix.target, updates))
        return gnmi_pb2.GetResponse(notification=notifications)

    def Subscribe(self, request_iterator: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Send what is subscribed to: once, whenever it is polled, or as a stream until the subscriber goes."""
        self._authenticate(context)
        first: Any = next(request_iterator, None)
        if first is None or first.WhichOneof("request") != "subscribe":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must have a list of subscriptions")
        subscribed = first.subscribe
        encoding = _encoding(subscribed.encoding, context)
        wanted = [_wanted(subscribed, one, context) for one in _few(subscribed.subscription, context)]
        if not wanted:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "nothing is subscribed to")
        match subscribed.mode:
            case gnmi_pb2.SubscriptionList.ONCE:
                yield from self._once(subscribed, wanted, encoding)
            case gnmi_pb2.SubscriptionList.POLL:
                yield from self._poll(subscribed, wanted, encoding, request_iterator, context)
            case _:
                yield from self._stream(subscribed, wanted, encoding, context)

    def _once(self, subscribed: Any, wanted: Sequence[WantedPath], encoding: int) -> Iterator[Any]:
        if not subscribed.updates_only:
            leaves = Stream(wanted, 0).begin(self._read([one.pattern for one in wanted]))
            yield from _updates(subscribed, leaves, (), encoding)
        yield gnmi_pb2.SubscribeResponse(sync_response=True)

    def _poll(
        self, subscribed: Any, wanted: Sequence[WantedPath], encoding: int, requests: Iterator[Any], context: Any
    ) -> Iterator[Any]:
        yield from self._once(subscribed, wanted, encoding)
        for request in requests:
            if request.WhichOneof("request") != "poll":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "behind a list with mode POLL there are polls alone")
            yield from self._once(subscribed, wanted, encoding)

    def _stream(self, subscribed: Any, wanted: Sequence[WantedPath], encoding: int, context: Any) -> Iterator[Any]:
        gone = threading.Event()
        if not context.add_callback(gone.set):  # the subscriber has gone already
            return
        stream = Stream(wanted, time.monotonic_ns())
        leaves = stream.begin(self._read(stream.patterns))
        if not subscribed.updates_only:
            yield from _updates(subscribed, leaves, (), encoding)
        yield gnmi_pb2.SubscribeResponse(sync_response=True)
        while not gone.wait(max(0, stream.due_ns - time.monotonic_ns()) / 1e9):
            updates, removed = stream.step(self._read(stream.patterns), time.monotonic_ns())
            yield from _updates(subscribed, updates, removed, encoding)


def _few(items: Sequence[Any], context: Any) -> Sequence[Any]:
    if len(items) > MOST_PATHS:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a request has at most {MOST_PATHS} paths")
    return items


def _encoding(asked: int, context: Any) -> int:
    if asked not in ENCODINGS:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "the encodings are JSON, JSON_IETF and PROTO")
    return asked


def _pattern(prefix: Any, path: Any, context: Any) -> TreePath:
    """Read a path behind its prefix."""
    elements = [*prefix.elem, *path.elem]
    if len(elements) > MAX_ELEMENTS:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a path has at most {MAX_ELEMENTS} elements")
    if (path.origin or prefix.origin) not in ("", "openconfig"):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the origin is openconfig")
    try:
        return tuple(element(one.name, dict(one.key)) for one in elements)
    except PathError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise  # for who reads it: abort has raised already


def _wanted(subscribed: Any, one: Any, context: Any) -> WantedPath:
    return WantedPath(
        pattern=_pattern(subscribed.prefix, one.path, context),
        when=_MODES.get(one.mode, When.TARGET_DEFINED),
        interval_ns=one.sample_interval,
        heartbeat_ns=max(one.heartbeat_interval, 100_000_000) if one.heartbeat_interval else 0,
        suppress_redundant=one.suppress_redundant,
    )


def _values(leaves: Leaves, pattern: TreePath, encoding: int) -> Iterator[tuple[TreePath, Any]]:
    """Yield the places that a pattern means, with their values; PROTO has one for each leaf."""
    if encoding == gnmi_pb2.PROTO:
        for path, value in leaves.items():
            if covers(pattern, path) is not None:
                yield path, _typed(path, value, encoding)
        return
    ietf = encoding == gnmi_pb2.JSON_IETF
    for place, document in subtrees(leaves, pattern, ietf=ietf).items():
        yield place, _json(document, ietf=ietf)


def _typed(path: TreePath, value: Scalar, encoding: int) -> Any:
    if encoding != gnmi_pb2.PROTO:
        ietf = encoding == gnmi_pb2.JSON_IETF
        return _json(scalar_json(path, value, ietf=ietf), ietf=ietf)
    if isinstance(value, bool):
        return gnmi_pb2.TypedValue(bool_val=value)
    if isinstance(value, int):
        return gnmi_pb2.TypedValue(uint_val=value)
    return gnmi_pb2.TypedValue(string_val=value)


def _json(document: Any, *, ietf: bool) -> Any:
    text = json.dumps(document).encode()
    return gnmi_pb2.TypedValue(json_ietf_val=text) if ietf else gnmi_pb2.TypedValue(json_val=text)


def _message(path: TreePath) -> Any:
    return gnmi_pb2.Path(elem=[gnmi_pb2.PathElem(name=name, key=dict(keys)) for name, keys in path])


def _notification(target: str, updates: Sequence[Any], gone: Sequence[TreePath] = ()) -> Any:
    message = gnmi_pb2.Notification(timestamp=time.time_ns(), update=updates)
    getattr(message, "delete").extend(map(_message, gone))  # noqa: B009  # a word of Python
    if target:
        message.prefix.target = target
    return message


def _updates(subscribed: Any, leaves: Leaves, gone: Sequence[TreePath], encoding: int) -> Iterator[Any]:
    """Yield one response with all leaves; none where there is nothing to tell."""
    updates = [
        gnmi_pb2.Update(path=_message(path), val=_typed(path, value, encoding)) for path, value in leaves.items()
    ]
    if updates or gone:
        yield gnmi_pb2.SubscribeResponse(update=_notification(subscribed.prefix.target, updates, gone))
