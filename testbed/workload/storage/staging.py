"""The weights of a model on their way to the hosts that serve it, or that go on training after a restart.

Either every host reads all of them, which storage sends as often as there are hosts, or one host of each group reads
them and the group hands them on, as MegaScale's restarts do (Jiang et al., "MegaScale: Scaling large language model
training to more than 10,000 GPUs", NSDI 2024, section 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from testbed.base.errors import WorkloadError
from testbed.workload.builder import Lane, StepBuilder
from testbed.workload.choices import choose
from testbed.workload.models.language_models import MODELS, language_model
from testbed.workload.parameters import asked, choice, number, some_ranks, whole
from testbed.workload.steps import Slice, Workload
from testbed.workload.storage.places import STORAGE, storage_and_users

WEIGHT_BYTES = 2
"""The bytes of a parameter in bf16."""


class FanOut(StrEnum):
    READ_ALL = "read-all"
    """Every host reads the whole model."""
    READ_AND_BROADCAST = "read-and-broadcast"
    """The first host of each group reads it, and each host hands every piece on to the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Weights that are sent: whose, to whom, and how."""

    model: str = asked(choice("model", "8B", tuple(MODELS), "Names the model, of 2 bytes a parameter."))
    storage: int | tuple[int, ...] = asked(STORAGE)
    hosts: int | tuple[int, ...] | None = asked(
        some_ranks("hosts", None, "Says how many ranks load the model, or which; by default all that are not storage.")
    )
    fan_out: FanOut | str = asked(
        choice(
            "fan_out", FanOut.READ_ALL.value, tuple(FanOut), "Says whether all hosts read, or hand on what one reads."
        )
    )
    groups: int = asked(
        whole("groups", 1, "Says in how many groups hosts hand the model on, each with a reader.", high=100_000)
    )
    pieces: int = asked(
        whole("pieces", 32, "Says in how many pieces it is read, from one storage rank after the other.", high=100_000)
    )
    in_flight: int = asked(whole("in_flight", 4, "Says how many reads of a host are under way at once.", high=100_000))
    bytes_factor: float = asked(
        number("bytes_factor", 0.001, "Multiplies the bytes of the model.", low=1e-9, high=1000)
    )


def generate_staging(staging: Staging, *, ranks: int) -> Workload:
    """Each host gets all pieces of the model, by reading them or from the host in front of it in its group.

    Hosts begin to read at different storage ranks. A piece is handed on when it is there, at most `in_flight` of a host
    at once.
    """
    targets, hosts = storage_and_users(
        staging.storage, staging.hosts, ranks=ranks, name="hosts", what="staging a model"
    )
    broadcast = choose(FanOut, staging.fan_out, "fan_out") is FanOut.READ_AND_BROADCAST
    if not 1 <= staging.groups <= len(hosts):
        raise WorkloadError(f"{len(hosts)} hosts are no {staging.groups} groups", field="groups")
    if staging.groups > 1 and not broadcast:
        raise WorkloadError("where every host reads there are no groups", field="groups")
    model = language_model(staging.model)
    size_bytes = max(1, round(model.parameters * WEIGHT_BYTES * staging.bytes_factor))
    pieces = [piece for piece in Slice(offset=0, length=size_bytes).split(staging.pieces) if piece.length]
    parts = Slice(offset=0, length=len(hosts)).split(staging.groups if broadcast else len(hosts))
    groups = [hosts[part.offset : part.end] for part in parts]
    builder = StepBuilder(ranks)
    for number_, piece in enumerate(pieces):
        for position, (reader, *others) in enumerate(groups):
            there = builder.transfer(
                targets[(position + number_) % len(targets)],
                reader,
                piece.length,
                lane=Lane(name="reads", in_flight=staging.in_flight),
                pulled=True,
                label=f"read.{reader}.{number_}",
            )
            for source, destination in zip([reader, *others], others, strict=False):
                there = builder.transfer(
                    source,
                    destination,
                    piece.length,
                    after=(there,),
                    lane=Lane(name="handed on", in_flight=staging.in_flight),
                    label=f"handed-on.{destination}.{number_}",
                )
    if staging.bytes_factor != 1:
        builder.note(f"Of the bytes of {model.name} {staging.bytes_factor:g} are modelled.")
    return builder.build("model-staging")
