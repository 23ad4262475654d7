"""The links of a program's scale-up domain as JSON, strictly read back (see `program_json`)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from testbed.base.json_values import Json, read_list, read_object, read_row, read_text, read_whole
from testbed.base.program_errors import ProgramError
from testbed.endpoints.worker.program import ScaleUpLinks, ScaleUpPackets, ScaleUpPlace
from testbed.protocols.errors import TransportError
from testbed.protocols.scale_up.domain.endpoint import Gpu
from testbed.protocols.scale_up.domain.settings_json import decode_gpu, encode_gpu

_TIME_LIMIT = 1 << 62
_MOST_RANKS = 65_536
_LIBRARY_LIMIT = 4096


def encode_scale_up(links: ScaleUpLinks) -> list[Json]:
    """Return the links as JSON has them."""
    packets = links.packets
    return [
        links.rate_bps,
        links.in_switch_bps,
        links.one_way_ns,
        links.domain,
        sorted(links.neighbours),
        None if packets is None else _encode_packets(packets),
    ]


def decode_scale_up(item: Json, own: AbstractSet[int], others: AbstractSet[int]) -> ScaleUpLinks:
    """Read back what `encode_scale_up` wrote. `own` are the ranks of this host, `others` those of other hosts.

    Raises `ProgramError`.
    """
    path = "scale_up"
    rate_bps, in_switch_bps, one_way_ns, domain, neighbours, packets = read_row(item, path, 6)
    named = [read_whole(rank, f"{path}.neighbours", _MOST_RANKS) for rank in read_list(neighbours, path)]
    found = ScaleUpLinks(
        rate_bps=read_whole(rate_bps, path, 1 << 62),
        in_switch_bps=read_whole(in_switch_bps, path, 1 << 62),
        one_way_ns=read_whole(one_way_ns, path, _TIME_LIMIT),
        domain=read_text(domain, path),
        neighbours=frozenset(named),
        packets=None if packets is None else _decode_packets(packets, f"{path}.packets"),
    )
    if found.neighbours and (not found.domain or not found.neighbours <= others):
        raise ProgramError(path, "neighbours are other hosts' ranks, with endpoints, of a domain that has a name")
    if found.packets is not None and any(place.rank not in own for place in found.packets.places):
        raise ProgramError(f"{path}.packets", "one of its GPUs is that of another host's rank")
    return found


def _encode_packets(packets: ScaleUpPackets) -> dict[str, Json]:
    return {
        "library": packets.library,
        "name": packets.name,
        "rtt_ns": packets.rtt_ns,
        "timeout_ns": packets.timeout_ns,
        "counts_errors": packets.counts_errors,
        "places": [[place.rank, place.name, encode_gpu(place.gpu)] for place in packets.places],
    }


def _decode_packets(item: Json, path: str) -> ScaleUpPackets:
    fields = read_object(item, path)
    if set(fields) != {"library", "name", "rtt_ns", "timeout_ns", "counts_errors", "places"}:
        raise ProgramError(path, "has other fields than those of a domain's packets")
    library, counts = fields["library"], fields["counts_errors"]
    if not isinstance(library, str) or not 0 < len(library) <= _LIBRARY_LIMIT or type(counts) is not bool:
        raise ProgramError(path, "its library is no path, or counts_errors neither true nor false")
    places = [_decode_place(place, f"{path}.places[{n}]") for n, place in enumerate(read_list(fields["places"], path))]
    if len({place.rank for place in places}) != len(places) or len({place.gpu.gpu for place in places}) != len(places):
        raise ProgramError(f"{path}.places", "a rank or a GPU stands there twice")
    return ScaleUpPackets(
        library=library,
        name=read_text(fields["name"], path),
        rtt_ns=read_whole(fields["rtt_ns"], path, _TIME_LIMIT),
        timeout_ns=read_whole(fields["timeout_ns"], path, _TIME_LIMIT),
        counts_errors=counts,
        places=tuple(places),
    )


def _decode_place(item: Json, path: str) -> ScaleUpPlace:
    rank, name, gpu = read_row(item, path, 3)
    return ScaleUpPlace(
        rank=read_whole(rank, path, _MOST_RANKS), name=read_text(name, path), gpu=_decode_gpu(gpu, path)
    )


def _decode_gpu(item: Json, path: str) -> Gpu:
    fields = read_object(item, path)
    try:
        return decode_gpu(fields)
    except (KeyError, TypeError, ValueError, TransportError) as error:
        raise ProgramError(path, f"is no GPU of a scale-up domain: {error}") from None
