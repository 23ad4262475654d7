"""InfiniBand's transport: RoCE's queue pairs between HCAs, whose frames have LRHs where RoCEv2 has Ethernet and IP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.protocols.congestion.ccti import TIMER_UNIT_US
from testbed.protocols.congestion.registry import NONE
from testbed.protocols.errors import UsageError
from testbed.protocols.infiniband.local_routing import DEFAULT_PKEY, LRH_BYTES, VCRC_BYTES
from testbed.protocols.roce.packets.headers import BTH_BYTES, DETH_BYTES, IMMEDIATE_BYTES, RETH_BYTES
from testbed.protocols.roce.packets.icrc import ICRC_BYTES
from testbed.run.schema.model import Scalar, Transport
from testbed.run.schema.transport_rules import CC_PREFIX
from testbed.run.transports.lab_transport import PathChoice, address_of
from testbed.run.transports.roce import Roce
from testbed.run.transports.user_space import NicPair, pairs_by_host
from testbed.workload.oracles.serialisation import Framing

if TYPE_CHECKING:
    from testbed.endpoints.worker.program import Settings
    from testbed.endpoints.worker.transports.ib import IbSettings
    from testbed.run.placed.placed_workload import PlacedWorkload

LOCAL_BYTES: Final = LRH_BYTES + VCRC_BYTES
"""The bytes of a frame beside BTH to ICRC: where RoCEv2 has Ethernet, IPv4 and UDP."""
DEFAULT_MTU: Final = 4096
DEFAULT_TIMEOUT: Final = 14
"""67 ms: a subnet manager has new tables in less."""


class Ib(Roce):
    """Options are those that `run.schema.transports` declares."""

    of_links_alone: ClassVar[bool] = False

    @classmethod
    def check_machine(cls, transport: Transport) -> None:
        """Raise `CapabilityError` where this machine lacks the subnet manager, or a compiler for the wires."""
        from testbed.lab.features.infiniband.plane import require_programs
        from testbed.protocols.infiniband.binding import build

        require_programs()
        build()

    def check_config(self, nic: PortPlan) -> None:
        super().check_config(nic)
        fabric = self.lab.model.infiniband
        if self._sends_datagrams and fabric is not None and fabric.settings.adaptive_routing:
            raise UsageError(
                "service: ud puts a transfer together in the order in which its datagrams come, and"
                " fabric.infiniband.adaptive_routing lets them overtake each other"
            )

    @property
    def path_choice(self) -> PathChoice:
        return PathChoice.ROUTED

    @property
    def _is_dynamic(self) -> bool:
        return self.transport.options.get("connections") == "dc"

    def framing(self, nic: PortPlan) -> Framing:
        headers = LOCAL_BYTES + BTH_BYTES + ICRC_BYTES
        if self._sends_datagrams:
            headers += DETH_BYTES + IMMEDIATE_BYTES
        elif self.transport.options.get("ooo"):  # each packet says where it belongs
            headers += RETH_BYTES
        return Framing(payload_bytes=self._path_mtu(nic), overhead_bytes=headers)

    def _path_mtu(self, nic: PortPlan) -> int:
        return int(self.transport.options.get("path_mtu", DEFAULT_MTU))

    @property
    def _sends_datagrams(self) -> bool:
        return self.transport.options.get("service") == "ud"

    def worker_settings(self, placement: PlacedWorkload) -> Callable[[str], Settings]:
        from testbed.endpoints.worker.transports.ib import IbSettings
        from testbed.endpoints.worker.transports.roce import RoceSettings

        of_roce = super().worker_settings(placement)
        service = "ud" if self._sends_datagrams else "rc"
        hcas_of = self._live_hcas(placement)

        def settings(host: str) -> IbSettings:
            found = of_roce(host)
            assert isinstance(found, RoceSettings)
            of_host = hcas_of(host)
            return IbSettings(
                **{one.name: getattr(found, one.name) for one in fields(found)}, service=service, **of_host
            )

        return settings

    def _live_hcas(self, placement: PlacedWorkload) -> Callable[[str], dict[str, Any]]:
        """Return what tells the HCAs of a host and their peers, by the host's name; nothing in virtual time. Raises
        `ScenarioError` for ranks that are in no partition together, or not in the subnet."""
        from testbed.run.placed.subnet import pkey_between, require_lids
        from testbed.run.placed.subnet_lab import SubnetLab

        lab = self.lab
        if not isinstance(lab, SubnetLab):
            return lambda host: {}
        subnet = lab.wires.subnet()
        names = {address_of(nic): f"{nic.node}:{nic.name}" for nic in placement.ranks}
        require_lids(subnet, names.values())
        pairs = pairs_by_host(placement.ranks, placement.channels)
        wires = lab.wires

        def tell(host: str) -> dict[str, Any]:
            hcas: dict[str, str] = {}
            lids: dict[str, int] = {}
            pkeys: dict[str, dict[str, int]] = {}
            for a, b in pairs.get(host, ()):
                own, other = address_of(a), address_of(b)
                hcas[own] = str(wires.adapter(names[own]))
                lids[other] = subnet.nodes[names[other]].lid
                key = pkey_between(subnet, names[own], names[other])
                if key != DEFAULT_PKEY:
                    pkeys.setdefault(own, {})[other] = key
            return {"hcas": hcas, "lids": lids, "pkeys": pkeys}

        return tell

    def own_nic_and_delays(self, pairs: Sequence[NicPair]) -> tuple[PortPlan | None, dict[str, dict[str, int]]]:
        return (pairs[0][0] if pairs else None), {}

    def _config(self, nic: PortPlan) -> dict[str, Scalar]:
        config = super()._config(nic)
        config["cc"] = self.transport.cc or NONE.name
        if "timeout" not in self.transport.options:
            config["timeout"] = DEFAULT_TIMEOUT
        return config

    @property
    def _is_controlled(self) -> bool:
        return self.transport.cc not in (None, NONE.name)

    @cached_property
    def _cc_parameters(self) -> Mapping[str, bool | int | float]:
        """The parameters that the subnet's CC manager tells HCAs, but for those that the scenario has."""
        if not self._is_controlled:
            return {}
        fabric = self.lab.model.infiniband
        congestion = None if fabric is None else fabric.settings.congestion_control
        told: dict[str, bool | int | float] = {}
        if congestion is not None:
            told = {"increase": congestion.increase, "timer_us": congestion.timer * TIMER_UNIT_US}
        return told | {
            name.removeprefix(CC_PREFIX): value
            for name, value in self.transport.options.items()
            if name.startswith(CC_PREFIX) and not isinstance(value, str)
        }

    def warnings(self) -> list[str]:
        """Congestion control that no switch tells of congestion."""
        fabric = self.lab.model.infiniband
        if self._is_controlled and fabric is not None and fabric.settings.congestion_control is None:
            return ["cc: ccti reacts to marks, and no switch marks: fabric.infiniband has no congestion_control"]
        return []

    def approximations(self) -> list[str]:
        return [
            "Queue pairs, rkeys and LIDs are known to both ends beforehand: no connection manager takes part, and"
            " numbers of packets begin where both have agreed.",
            "The DC transport's messages are this project's own: NVIDIA's are not public.",
            *(f"{said}." for said in self.warnings()),
        ]


TRANSPORT = Ib
