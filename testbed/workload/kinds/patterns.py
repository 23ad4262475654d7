"""Kinds of independent transfers: who sends to whom."""

from __future__ import annotations

from testbed.base.errors import WorkloadError
from testbed.workload.flow_sizes import FLOW_SIZES, FlowSizes
from testbed.workload.frontend import MAX_BURST_FACTOR, Mice, generate_mice, regular_bursts
from testbed.workload.kinds.kind import FabricView, WorkloadKind, built_by
from testbed.workload.parameters import (
    Values,
    choice,
    duration,
    listed,
    number,
    parameters_of,
    rank,
    size,
    some_ranks,
    whole,
)
from testbed.workload.patterns import (
    Scope,
    generate_background,
    generate_incast,
    generate_incast_victim,
    generate_outcast,
    generate_outcast_incast,
    generate_overlapped_incast,
    generate_permutation,
    generate_point_to_point,
    generate_tornado,
)
from testbed.workload.steps import Workload

_BYTES = size("bytes", "64bdp", "Gives the payload of each transfer.")
_FLOWS = whole("flows", 1, "Says how many transfers run side by side for each pair.", high=1024)
_OPERATION = choice(
    "operation",
    "write",
    ("write", "read"),
    "Says whether the sender writes the bytes, or the receiver reads them, which a request for each transfer asks for"
    " where the transport has no reads. Inside a scale-up domain with packets, reads are its own.",
)
_LOAD, _SPAN, _SOURCES, _DESTINATIONS = parameters_of(Mice)


def _reads(values: Values, _: FabricView) -> bool:
    return values.text("operation") == "read"


def _sources(values: Values, fabric: FabricView) -> list[int]:
    return listed(values.some_ranks("sources"), list(range(fabric.ranks)), "sources")


def _flow_sizes(values: Values) -> FlowSizes:
    sizes = FLOW_SIZES[values.text("sizes")]
    if not values.given("largest"):
        return sizes
    try:
        return sizes.up_to(values.bytes("largest"))
    except ValueError as error:
        raise WorkloadError(str(error), field="largest") from error


def _mice(values: Values, fabric: FabricView) -> Workload:
    bursts = (
        regular_bursts(
            on_ns=values.ns("burst_on"),
            off_ns=values.ns("burst_off"),
            factor=values.number("burst_factor"),
            duration_ns=values.ns("span"),
        )
        if values.given("burst_on")
        else ()
    )
    mice = values.make(Mice, sizes=_flow_sizes(values), bursts=bursts)
    return generate_mice(mice, ranks=fabric.ranks, rate_bps=fabric.rate_bps, rng=fabric.rng)


KINDS = (
    WorkloadKind(
        name="point-to-point",
        description="One rank sends to another.",
        parameters=(
            _BYTES,
            rank("source", 0, "Names the rank that sends."),
            rank("destination", 1, "Names the rank that receives."),
            _FLOWS,
            whole("rounds", 1, "Says how often each pair sends, each time after the last.", high=100_000),
            _OPERATION,
        ),
        build=built_by(generate_point_to_point, reads=_reads),
        timed=True,
    ),
    WorkloadKind(
        name="incast",
        description="Several ranks send to one at once.",
        parameters=(
            _BYTES,
            rank("destination", 0, "Names the rank that receives."),
            some_ranks("senders", None, "Says how many ranks send, or which; by default all others."),
            duration("jitter", "0ns", "Spreads the begins of the flows at random over so much time."),
        ),
        build=built_by(generate_incast),
        timed=True,
    ),
    WorkloadKind(
        name="overlapped-incast",
        description="A long flow meets, after a while, an incast to its destination.",
        parameters=(
            size("long_bytes", "256bdp", "Gives the payload of the long flow."),
            size("burst_bytes", "16bdp", "Gives the payload of each flow of the incast."),
            duration("burst_start", "1ms", "Says when the incast begins."),
            whole("senders", 3, "Says how many flows the incast has.", high=100_000),
            rank("destination", 0, "Names the rank that receives."),
        ),
        build=built_by(generate_overlapped_incast),
    ),
    WorkloadKind(
        name="incast-victim",
        description="Several ranks send to rank 0, and the last rank but one to the last, which has no part in that.",
        parameters=(
            _BYTES,
            size("victim_bytes", "64bdp", "Gives the payload of the victim."),
            duration("victim_start", "0ns", "Says when the victim begins."),
            whole("senders", None, "Says how many ranks send to rank 0; by default all others.", high=100_000),
            rank(
                "victim_source",
                None,
                "Names the rank that the victim comes from, which may be one of the senders; by default the last but"
                " one, which is none.",
            ),
            whole(
                "victim_vc",
                None,
                "Gives the victim's frames inside a scale-up domain a virtual channel of their own, from 0; by default"
                " that of all requests.",
                low=0,
                high=7,
            ),
        ),
        build=built_by(generate_incast_victim),
    ),
    WorkloadKind(
        name="outcast",
        description="One rank sends to several at once.",
        parameters=(
            _BYTES,
            rank("source", 0, "Names the rank that sends."),
            some_ranks("receivers", None, "Says how many ranks receive, or which; by default all others."),
        ),
        build=built_by(generate_outcast),
        timed=True,
    ),
    WorkloadKind(
        name="outcast-incast",
        description="One rank sends to several, and one more rank to the last of those.",
        parameters=(_BYTES, whole("receivers", 4, "Says how many ranks the first one sends to.", high=100_000)),
        build=built_by(generate_outcast_incast),
        timed=True,
    ),
    WorkloadKind(
        name="permutation",
        description="Every rank sends to one other and receives from one other, drawn by the seed.",
        parameters=(
            _BYTES,
            choice(
                "scope",
                "any",
                tuple(Scope),
                "Says whether a rank sends to any other one, or only to one of another leaf.",
            ),
            _FLOWS,
            some_ranks("sources", None, "Says how many of the ranks send, or which; by default all."),
            _OPERATION,
        ),
        build=built_by(generate_permutation, reads=_reads, sources=_sources),
        timed=True,
    ),
    WorkloadKind(
        name="tornado",
        description="Rank i sends to rank i + shift, so that all traffic crosses the spine.",
        parameters=(
            _BYTES,
            whole("shift", None, "Says how far away a rank's destination is; by default half of all ranks."),
            _FLOWS,
        ),
        build=built_by(generate_tornado),
        timed=True,
    ),
    WorkloadKind(
        name="mice",
        description="Front-end flows arrive as a Poisson process (open loop), in bursts if told.",
        parameters=(
            choice("sizes", "WebSearch", tuple(FLOW_SIZES), "Names the distribution of the flows' sizes."),
            size("largest", None, "Leaves out the distribution's flows above this size; by default none."),
            _LOAD,
            _SPAN,
            duration("burst_on", None, "Gives the length of a burst; by default there are no bursts.", low=1),
            duration("burst_off", "100us", "Gives the time between two bursts."),
            number(
                "burst_factor", 10, "Says how much more often flows arrive in a burst.", low=1, high=MAX_BURST_FACTOR
            ),
            _SOURCES,
            _DESTINATIONS,
        ),
        build=_mice,
    ),
    WorkloadKind(
        name="background",
        description="Random pairs send at a steady load.",
        parameters=(
            size("bytes", "1MB", "Gives the payload of each transfer."),
            whole("pairs", 2, "Says how many pairs there are.", high=10_000),
            duration("span", "1ms", "Says for how long transfers begin.", low=1),
            number("load", 0.2, "Says what each pair offers, as a share of a link.", low=0.0001, high=1),
        ),
        build=built_by(generate_background, duration_ns="span"),
    ),
)
