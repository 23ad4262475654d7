"""DCQCN: a rate that congestion notifications cut, and that time and bytes raise again.

Two reaction points are known, and parameters say which one is meant. That of the paper (Zhu et al., "Congestion
Control for Large-Scale RDMA Deployments", SIGCOMM 2015) cuts the rate with every CNP. That of NICs, as the simulator of
HPCC has it (Li et al., SIGCOMM 2019, `rdma-hw.cc`), looks once in an interval whether a CNP has come (`decrease_us`
above 0).

Of a flow: RC is the rate at which it sends, RT the target that increases lead back to, alpha the estimate of how
congested its path is. The notification point, which sends the CNPs, is the receiver's RNIC.

Nothing here has a timer: what time has done is made up for whenever the rate is asked for. Times of the parameters are
those of the fabric, in us; the lab's are longer by its time scale, and its rates lower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.congestion.controller import FlowController, FlowSettings, chosen_parameters, parameters_of
from testbed.protocols.errors import UsageError

_BPS_25G: Final = 25e9
_US: Final = 1000
_NEVER: Final = 1 << 62
_LEAST_ALPHA: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class DcqcnParameters:
    """A set of parameters, of a fabric at its full speed."""

    cnp_us: float
    """N: a queue pair's receiver sends no more than one CNP in so long; 0: one for each marked packet."""
    alpha_us: float
    """K: alpha is updated so often, once without a CNP."""
    g: float
    """The weight of the latest interval in alpha."""
    decrease_us: float
    """The rate is cut no more than once in so long; 0: with every CNP."""
    timer_us: float
    """T: the rate is raised so often."""
    counter_bytes: int
    """B: the rate is raised after so many bytes, too; 0: it is not."""
    fast_recovery: int
    """F: increases that lead back to the target before it is raised itself."""
    additive_bps: float
    """R_AI."""
    hyper_bps: float
    """R_HAI."""
    per_25g: bool
    """R_AI and R_HAI are those of a NIC of 25 Gbit/s, and in proportion for others."""
    least_bps: float
    """Below which the rate is not cut."""
    clamp_target: bool
    """RT follows RC down with every cut; else only with one that an increase went before."""

    def __post_init__(self) -> None:
        for name in ("alpha_us", "g", "timer_us", "additive_bps", "hyper_bps", "least_bps"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} of DCQCN is {getattr(self, name):g}; it must be above 0")
        if self.g > 1:
            raise UsageError(f"g of DCQCN is {self.g:g}; it must be at most 1")
        for name in ("cnp_us", "decrease_us", "counter_bytes", "fast_recovery"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} of DCQCN is {getattr(self, name):g}; it must not be below 0")


def _hpcc_paper() -> DcqcnParameters:
    """HPCC's `dcqcn_paper` (alibaba-edu/High-Precision-Congestion-Control, `simulation/run.py`): the paper's times.

    ALPHA_RESUME_INTERVAL 50, RATE_DECREASE_INTERVAL 50, RP_TIMER 55, EWMA_GAIN 1/256, FAST_RECOVERY_TIMES 1,
    CLAMP_TARGET_RATE 0, MIN_RATE 1000 Mb/s; RATE_AI 5 and RATE_HAI 50 Mb/s for each 25 Gbit/s of the NIC. There are
    neither a byte counter nor a CNP interval: L2_ACK_INTERVAL is 1, and each acknowledgement of a marked packet is a
    notification (`rdma-hw.cc`, `ReceiveUdp`, `ReceiveAck`).
    """
    return DcqcnParameters(
        cnp_us=0,
        alpha_us=50,
        g=1 / 256,
        decrease_us=50,
        timer_us=55,
        counter_bytes=0,
        fast_recovery=1,
        additive_bps=5e6,
        hyper_bps=50e6,
        per_25g=True,
        least_bps=1e9,
        clamp_target=False,
    )


def _paper() -> DcqcnParameters:
    """Zhu et al., SIGCOMM 2015: section 5 and figure 14, for NICs of 40 Gbit/s.

    Timer 55 us, byte counter 10 MB, g 1/256, N 50 us, K 55 us, F 5, R_AI 40 Mbit/s; RT = RC with every cut (equation
    1). The paper names no R_HAI and no least rate: 400 and 10 Mbit/s are ours.
    """
    return DcqcnParameters(
        cnp_us=50,
        alpha_us=55,
        g=1 / 256,
        decrease_us=0,
        timer_us=55,
        counter_bytes=10_000_000,
        fast_recovery=5,
        additive_bps=40e6,
        hyper_bps=400e6,
        per_25g=False,
        least_bps=10e6,
        clamp_target=True,
    )


def _nvidia() -> DcqcnParameters:
    """The defaults of ConnectX firmware, as `mlxconfig -d DEVICE query` shows them.

    MIN_TIME_BETWEEN_CNPS 4, DCE_TCP_RTT 1 and RATE_REDUCE_MONITOR_PERIOD 4 us, RPG_TIME_RESET 300 us, RPG_THRESHOLD 1,
    RPG_AI_RATE 5, RPG_HAI_RATE 50 and RPG_MIN_RATE 1 Mbit/s whatever the NIC's rate, CLAMP_TGT_RATE 0 with
    CLAMP_TGT_RATE_AFTER_TIME_INC 1, INITIAL_ALPHA_VALUE 1023 of 1024. DCE_TCP_G 1019 of 1024 is what is left of alpha.
    RPG_BYTE_RESET 32767 is left out: its unit is not documented, and as bytes it would raise rates all the time.
    """
    return DcqcnParameters(
        cnp_us=4,
        alpha_us=1,
        g=5 / 1024,
        decrease_us=4,
        timer_us=300,
        counter_bytes=0,
        fast_recovery=1,
        additive_bps=5e6,
        hyper_bps=50e6,
        per_25g=False,
        least_bps=1e6,
        clamp_target=False,
    )


def _hpcc_vendor() -> DcqcnParameters:
    """HPCC's `dcqcn` (`simulation/run.py`), said to be a vendor's: `dcqcn_paper` with other times.

    ALPHA_RESUME_INTERVAL 1, RATE_DECREASE_INTERVAL 4, RP_TIMER 300 us.
    """
    return replace(_hpcc_paper(), alpha_us=1, decrease_us=4, timer_us=300)


PARAMETER_SETS: Final[Mapping[str, DcqcnParameters]] = MappingProxyType(
    {"hpcc-paper": _hpcc_paper(), "paper": _paper(), "nvidia": _nvidia(), "hpcc-vendor": _hpcc_vendor()}
)
"""By the name that `parameters` gives them; the first is the default."""


class Dcqcn(CongestionControl):
    """The reaction point of one flow. It starts at the rate of its NIC, and does nothing until the first CNP."""

    def __init__(self, parameters: DcqcnParameters, settings: FlowSettings) -> None:
        line = float(settings.link_rate_bps)
        super().__init__(line)
        scale = settings.time_scale
        self.notification_ns = max(0, int(parameters.cnp_us * _US * scale))
        share = line * scale / _BPS_25G if parameters.per_25g else 1.0
        self._parameters: Final[DcqcnParameters] = parameters
        self._line: Final[float] = line
        self._additive: Final[float] = parameters.additive_bps * share / scale
        self._hyper: Final[float] = parameters.hyper_bps * share / scale
        self._least: Final[float] = min(line, parameters.least_bps / scale)
        self._alpha_ns: Final[int] = max(1, int(parameters.alpha_us * _US * scale))
        self._cut_ns: Final[int] = int(parameters.decrease_us * _US * scale)
        self._timer_ns: Final[int] = max(1, int(parameters.timer_us * _US * scale))
        self.target_bps: float = line
        """RT."""
        self.alpha: float = 1.0
        self.time_stage: int = 0
        """Increases by the timer since the last cut."""
        self.byte_stage: int = 0
        """Increases by the byte counter since the last cut."""
        self._bytes: int = 0
        self._active: bool = False
        """A CNP has come."""
        self._notified: bool = False
        """One has come since alpha was last updated."""
        self._cut_due: bool = False
        """One has come since the rate was last looked at."""
        self._alpha_at: int = _NEVER
        self._cut_at: int = _NEVER
        self._raise_at: int = _NEVER

    # --- what happens -------------------------------------------------------------------------------------

    def on_notification(self, now: int) -> None:
        """A CNP has come."""
        self.update(now)
        if self._cut_ns == 0:
            self._active = True
            self._cut()
            self.alpha = (1 - self._parameters.g) * self.alpha + self._parameters.g
            self._alpha_at = now + self._alpha_ns
            self._raise_at = now + self._timer_ns
            return
        self._cut_due = True
        if self._active:
            self._notified = True
            return
        self._active = True
        self.alpha = 1.0
        self.target_bps = self.rate_bps
        self._alpha_at = now + self._alpha_ns
        self._cut_at = now + self._cut_ns

    def on_send(self, now: int, size: int) -> None:
        """Count the bytes of a packet."""
        limit = self._parameters.counter_bytes
        if not limit or not self._active:
            return
        self._bytes += size
        if self._bytes >= limit:
            self._bytes -= limit
            self.byte_stage += 1
            self._raise()

    def update(self, now: int) -> None:
        """Do what was due up to now, in its order."""
        if not self._active:
            return
        while self._cut_at <= now:
            if self._cut_due:
                at = self._cut_at
                self._raise_until(at)
                self._update_alpha(at)
                self._cut()
                self._cut_due = False
                self._raise_at = at + self._timer_ns
                self._cut_at = at + self._cut_ns
            else:
                self._cut_at += ((now - self._cut_at) // self._cut_ns + 1) * self._cut_ns
        self._raise_until(now)
        self._update_alpha(now)

    def state(self) -> dict[str, float]:
        """Return alpha and RT."""
        return {"alpha": self.alpha, "target_bps": self.target_bps}

    # --- the state machine --------------------------------------------------------------------------------

    def _cut(self) -> None:
        parameters = self._parameters
        if parameters.clamp_target or self.time_stage or not self._cut_ns:
            self.target_bps = self.rate_bps
        self.rate_bps = max(self._least, self.rate_bps * (1 - self.alpha / 2))
        self.time_stage = 0
        self.byte_stage = 0
        self._bytes = 0

    def _update_alpha(self, now: int) -> None:
        """Update alpha for every interval that has ended by now."""
        if self._alpha_at > now:
            return
        count = (now - self._alpha_at) // self._alpha_ns + 1
        self._alpha_at += count * self._alpha_ns
        kept = 1 - self._parameters.g
        if self._notified:
            self._notified = False
            self.alpha = kept * self.alpha + self._parameters.g
            count -= 1
        if count:
            self.alpha = max(_LEAST_ALPHA, self.alpha * kept**count)

    def _raise_until(self, now: int) -> None:
        """Raise the rate for every period of the timer that has ended by now."""
        while self._raise_at <= now:
            if self.rate_bps >= self._line and self.target_bps >= self._line:
                count = (now - self._raise_at) // self._timer_ns + 1
                self._raise_at += count * self._timer_ns
                self.time_stage += count
                return
            self._raise_at += self._timer_ns
            if self._cut_ns:  # NICs count a period when it has been acted on
                self._raise()
                self.time_stage += 1
            else:
                self.time_stage += 1
                self._raise()

    def _raise(self) -> None:
        parameters = self._parameters
        recovery = parameters.fast_recovery
        if self._cut_ns:
            if self.time_stage == recovery:
                self.target_bps += self._additive
            elif self.time_stage > recovery:
                self.target_bps += self._hyper
        elif min(self.time_stage, self.byte_stage) > recovery:
            self.target_bps += (min(self.time_stage, self.byte_stage) - recovery) * self._hyper
        elif max(self.time_stage, self.byte_stage) >= recovery:
            self.target_bps += self._additive
        self.target_bps = min(self.target_bps, self._line)
        self.rate_bps = (self.rate_bps + self.target_bps) / 2
        if self._line - self.rate_bps < 1:
            self.rate_bps = self._line


def _make(settings: FlowSettings) -> Dcqcn:
    return Dcqcn(chosen_parameters(PARAMETER_SETS, settings, "dcqcn"), settings)


CONTROLLER: Final = FlowController(
    name="dcqcn",
    description="a rate that congestion notifications cut, and that time and bytes raise again",
    make=_make,
    parameter_sets=tuple(PARAMETER_SETS),
    defaults=parameters_of(next(iter(PARAMETER_SETS.values()))),
    values={name: parameters_of(one) for name, one in PARAMETER_SETS.items()},
)
