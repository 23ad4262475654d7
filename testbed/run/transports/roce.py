"""RoCEv2 in user space: queue pairs between NICs, whose hardware times are those of the fabric, times k."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from testbed.base.errors import ScenarioError
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.user_space.roce import roce_config
from testbed.lab.core.plan.user_space.uet import ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES
from testbed.protocols.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER, NONE
from testbed.protocols.roce.config import LEAST_ENTROPY, RoceConfig
from testbed.protocols.roce.packets.headers import BTH_BYTES, RETH_BYTES
from testbed.protocols.roce.packets.icrc import ICRC_BYTES
from testbed.protocols.roce.packets.opcodes import UDP_PORT
from testbed.protocols.roce.recovery import DEFAULT_RECOVERY, RECOVERIES
from testbed.run.placed.channels import ChannelRules
from testbed.run.schema.model import Scalar
from testbed.run.schema.transport_rules import CC_PREFIX, ROCE_HEADER_BYTES, ROCE_MTUS
from testbed.run.transports.lab_transport import PathChoice
from testbed.run.transports.user_space import NicPair, UserSpaceTransport, pairs_by_host
from testbed.workload.oracles.serialisation import Framing

if TYPE_CHECKING:
    from testbed.endpoints.worker.program import Settings
    from testbed.endpoints.worker.transports.roce import RoceSettings
    from testbed.run.placed.placed_workload import PlacedWorkload

_PSN_STEP = 0x5B_D1E9
"""Between the first PSNs of runs that follow each other."""
_LONGEST_RUN = 1 << 16
"""Queue pairs of a run, in the counting of their numbers."""


class Roce(UserSpaceTransport):
    """Options are those that `run.schema.transports` declares."""

    of_links_alone: ClassVar[bool] = True

    @property
    def goes_back(self) -> bool:
        return str(self.transport.options.get("recovery", DEFAULT_RECOVERY)).startswith("go-back")

    def check_config(self, nic: PortPlan) -> None:
        RoceConfig(**self._config(nic), cc_parameters=self._cc_parameters)  # type: ignore[arg-type]
        self._notification_dscp  # noqa: B018 - the class must be there
        for host in self.lab.plan.hosts:
            for one in host.nics:
                self._path_mtu(one)

    @property
    def channel_rules(self) -> ChannelRules:
        from testbed.endpoints.worker.transports.roce import MOST_QPS

        dynamic = self._is_dynamic
        return ChannelRules(
            destination_port=UDP_PORT,
            one_for_each_pair=dynamic,
            keeps_port=dynamic,
            source_ports=(LEAST_ENTROPY, (1 << 16) - MOST_QPS),  # the ports of stripes follow the channel's
        )

    @property
    def path_choice(self) -> PathChoice:
        settings = self._config_of_control()
        return PathChoice.REPATHED if settings.get("repath_rounds") else PathChoice.HASHED

    def _config_of_control(self) -> Mapping[str, bool | int | float]:
        """The parameters of the congestion control: those of the set that is chosen, with what is written by itself."""
        if not self._is_controlled:
            return {}
        controller = CONTROLLERS[self.transport.cc or DEFAULT_CONTROLLER]
        chosen = str(self.transport.options.get("parameters") or next(iter(controller.parameter_sets), ""))
        return {**controller.values.get(chosen, {}), **self._cc_parameters}

    @property
    def _is_dynamic(self) -> bool:
        """Tell whether connections come and go: then a pair has one at a time, from its NIC's source port."""
        return self.transport.options.get("connections") == "dct"

    # --- packets -----------------------------------------------------------------------------------------

    def framing(self, nic: PortPlan) -> Framing:
        below = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
        each = RETH_BYTES if self.transport.options.get("ooo") else 0
        return Framing(payload_bytes=self._path_mtu(nic), overhead_bytes=below + BTH_BYTES + each + ICRC_BYTES)

    def _path_mtu(self, nic: PortPlan) -> int:
        """The path MTU of a NIC. Raises `ScenarioError` where the one asked for does not fit into the link's."""
        room = nic.mtu_bytes - ROCE_HEADER_BYTES
        wanted = self.transport.options.get("path_mtu")
        if wanted is not None:
            if int(wanted) > room:
                raise ScenarioError(
                    f"transport.path_mtu: {wanted} bytes do not fit into the MTU of {nic.node}:{nic.name},"
                    f" {nic.mtu_bytes} bytes, which leaves {room} beside the headers"
                )
            return int(wanted)
        fitting = next((mtu for mtu in ROCE_MTUS if mtu <= room), None)
        if fitting is None:
            raise ScenarioError(f"the MTU of {nic.node}:{nic.name}, {nic.mtu_bytes} bytes, is too small for RoCE")
        return fitting

    # --- workers -----------------------------------------------------------------------------------------

    def worker_settings(self, placement: PlacedWorkload) -> Callable[[str], Settings]:
        self._runs += 1
        pairs = pairs_by_host(placement.ranks, placement.channels)
        return lambda host: self._host_settings(pairs.get(host, ()))

    def _host_settings(self, pairs: Sequence[NicPair]) -> RoceSettings:
        """Return the settings of the worker of a host with these pairs of NICs."""
        from testbed.endpoints.worker.transports.roce import RoceSettings
        from testbed.protocols.roce.dynamic import DEFAULT_INITIATORS

        own, delays = self.own_nic_and_delays(pairs)
        return RoceSettings(
            config={} if own is None else self._config(own),
            cc_parameters=self._cc_parameters,
            dscp=self.dscp,
            ack_dscp=self.dscp,
            notification_dscp=self._notification_dscp,
            delays_ns=delays,
            tick_ns=self.tick_ns,
            qps=int(self.transport.options.get("qps", 1)),
            connections="dct" if self._is_dynamic else "rc",
            dcis=int(self.transport.options.get("dcis", DEFAULT_INITIATORS)),
            first_qpn=self._runs * _LONGEST_RUN % (1 << 24),
            first_psn=self._runs * _PSN_STEP % (1 << 24),
            domain=self._runs,
        )

    def _config(self, nic: PortPlan) -> dict[str, Scalar]:
        config: dict[str, Scalar] = {**roce_config(nic, self.base_rtt_ns, self.lab.plan.k, mtu=self._path_mtu(nic))}
        if self.transport.cc is not None:
            config["cc"] = self.transport.cc
        for name in ("parameters", "recovery", "ooo", "retry_count", "timeout"):
            if name in self.transport.options and (name != "parameters" or self._is_controlled):
                config[name] = self.transport.options[name]
        return config

    @property
    def _notification_dscp(self) -> int:
        """Return the DSCP of CNPs: of the class that is asked for, or of the one that waits nowhere."""
        wanted = self.transport.options.get("cnp_class")
        return self.control_dscp if wanted is None else self.dscp_of_class(str(wanted), "cnp_class")

    @property
    def _is_controlled(self) -> bool:
        """Tell whether there is a congestion control that parameters could be of."""
        return self.transport.cc != NONE.name

    @cached_property
    def _cc_parameters(self) -> Mapping[str, bool | int | float]:
        if not self._is_controlled:
            return {}
        return {
            name.removeprefix(CC_PREFIX): value
            for name, value in self.transport.options.items()
            if name.startswith(CC_PREFIX) and not isinstance(value, str)
        }

    # --- warnings ---------------------------------------------------------------------------------------

    def warnings(self) -> list[str]:
        """A lossy class, and what is made for lossless ones."""
        profile, chosen = self.profile, self.traffic_class
        if chosen is not None and chosen.lossless:
            return []
        found = []
        recovery = str(self.transport.options.get("recovery", DEFAULT_RECOVERY))
        if not RECOVERIES[recovery].keeps:
            where = f"of the class {chosen.name}, which is lossy" if chosen else "of no class, since the lab has no qos"
            found.append(
                f"RoCE's packets are {where}: with recovery: {recovery}, each that is lost has"
                f" {'its whole message' if RECOVERIES[recovery].restarts else 'all behind it'} sent again"
            )
        if self.transport.options.get("parameters") == "nvidia":
            what = "has no qos" if profile is None else "gives this class none"
            found.append(f"parameters: nvidia are those of NICs beside PFC, and the lab {what}")
        return found

    # --- reports -----------------------------------------------------------------------------------------

    def approximations(self) -> list[str]:
        return [
            *super().approximations(),
            "RoCE is an endpoint in user space: numbers of queue pairs, rkeys and addresses are agreed on beforehand,"
            " and rate limiters are as fine as the turns of a worker (simulated ones as fine as a packet).",
            *(f"{said}." for said in self.warnings()),
        ]


TRANSPORT = Roce
