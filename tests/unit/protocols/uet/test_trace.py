"""The trace of an endpoint: what it keeps, and that a run's trace has all that its plots need."""

import json

import pytest
from simulated_fabric import PAYLOAD, RATE, Fabric, config, port_settings

from testbed.protocols.uet.trace import Trace, TraceEvent

SENDERS = 8
SIZE = 100 * PAYLOAD


def test_events_are_kept_in_order() -> None:
    trace = Trace()
    trace.record(5, 1, "sent", psn=7)
    trace.record(6, 2, "acked", psn=7, rtt_ns=1)
    assert list(trace) == [TraceEvent(5, 1, "sent", {"psn": 7}), TraceEvent(6, 2, "acked", {"psn": 7, "rtt_ns": 1})]
    assert len(trace) == 2 and trace.dropped == 0


def test_the_oldest_go_when_it_is_full() -> None:
    trace = Trace(limit=2)
    for time_ns in range(5):
        trace.record(time_ns, 0, "sent")
    assert [event.time_ns for event in trace] == [3, 4]
    assert trace.dropped == 3


def test_events_of_a_kind_and_a_context() -> None:
    trace = Trace()
    for pdcid, kind in ((1, "sent"), (2, "sent"), (1, "acked")):
        trace.record(0, pdcid, kind)
    assert [event.pdcid for event in trace.of("sent")] == [1, 2]
    assert [event.kind for event in trace.of("sent", 1)] == ["sent"]
    assert list(trace.of("acked", 2)) == []


def test_json_lines() -> None:
    trace = Trace()
    trace.record(5, 1, "state", state="established")
    (line,) = trace.json_lines()
    assert json.loads(line) == {"time_ns": 5, "pdcid": 1, "kind": "state", "state": "established"}


@pytest.fixture(scope="module", params=[True, False], ids=["trimming", "dropping"])
def incast(request: pytest.FixtureRequest) -> Fabric:
    fabric = Fabric(SENDERS + 1, config(trimming=request.param), traced=True).star(port_settings(request.param))
    for sender in range(SENDERS):
        fabric.write(sender + 1, 0, SIZE)
    fabric.run()
    return fabric


def traces(fabric: Fabric) -> list[Trace]:
    return [trace for trace in fabric.traces[1:] if trace is not None]


def test_windows_flight_and_paths_are_traced_with_every_packet(incast: Fabric) -> None:
    for trace in traces(incast):
        sent = [*trace.of("sent"), *trace.of("retransmitted")]
        assert len(list(trace.of("sent"))) >= SIZE // PAYLOAD
        for event in sent:
            values = event.values
            assert set(values) >= {"psn", "ev", "cwnd_bytes", "inflight_bytes"}
            assert values["ev"] in incast.config.entropies
            assert incast.config.packet_bytes <= float(values["cwnd_bytes"]) <= 1.5 * RATE * 12e-6 / 8
        times = [event.time_ns for event in trace]
        assert times == sorted(times)


def test_round_trips_and_marks_are_traced_with_every_acknowledgement(incast: Fabric) -> None:
    acked = [event.values for trace in traces(incast) for event in trace.of("acked")]
    assert all(set(values) >= {"psn", "cack", "ev", "marked", "rtt_ns", "cwnd_bytes"} for values in acked)
    valid = [int(values["rtt_ns"]) for values in acked if int(values["rtt_ns"]) > 0]
    assert len(valid) > len(acked) // 2
    assert min(valid) >= 10_000  # nearly the base RTT, on paths without a queue
    assert {values["marked"] for values in acked} == {0, 1}


def test_every_loss_and_retransmission_is_traced(incast: Fabric) -> None:
    for trace in traces(incast):
        losses = [event for kind in ("nacked", "timeout", "inferred-loss") for event in trace.of(kind)]
        again = list(trace.of("retransmitted"))
        assert losses and len(again) == len(losses)
        assert {event.values["psn"] for event in again} == {event.values["psn"] for event in losses}
        if incast.config.trimming:
            assert {event.values["code"] for event in trace.of("nacked")} <= {"TRIMMED", "TRIMMED_LASTHOP"}


def test_states_are_traced(incast: Fabric) -> None:
    for trace in traces(incast):
        assert [event.values["state"] for event in trace.of("state")] == ["creating", "established"]
