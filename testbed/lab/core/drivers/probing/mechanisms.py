"""For each feature of the testbed: the mechanism that this machine will use, or what is missing and how to get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.base.datapath.markers import KERNEL_MARKERS
from testbed.lab.core.drivers.probing import mininet as mininet_package
from testbed.lab.core.drivers.probing.capabilities import Capabilities
from testbed.lab.core.drivers.probing.machine import FrrInstallation
from testbed.lab.core.drivers.probing.status import Status

_MODULES = "a distribution's kernel has it (Ubuntu: apt-get install linux-modules-extra-{kernel})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """The way in which a feature will work.

    DEGRADED: by something weaker than the best. `remedy` is "" where all is well.
    """

    feature: str
    status: Status
    uses: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class _Machine:
    capabilities: Capabilities
    frr: FrrInstallation | None
    docker: str
    """"" where the engine answers, else why not."""

    def lacking(self, *names: str) -> str:
        """Return those of `names` that do not work, with the reason; "" where all do."""
        return ", ".join(
            f"{name.partition('.')[2]}: {self.capabilities.why(name)}" for name in self.capabilities.lacking(*names)
        )

    def option(self, text: str) -> str:
        return f"{text}: {_MODULES.format(kernel=self.capabilities.kernel)}"

    def has(self, program: str) -> bool:
        item = self.capabilities.programs[program]
        return bool(item.path) and not item.error


def choose_mechanisms(capabilities: Capabilities, *, frr: FrrInstallation | None, docker: str) -> tuple[Mechanism, ...]:
    """All features. `docker` is why the engine cannot be used, "" if it can."""
    machine = _Machine(capabilities, frr, docker)
    return tuple(choose(machine) for choose in _FEATURES)


def _ok(feature: str, uses: str) -> Mechanism:
    return Mechanism(feature=feature, status=Status.OK, uses=uses)


def _degraded(feature: str, uses: str, remedy: str) -> Mechanism:
    return Mechanism(feature=feature, status=Status.DEGRADED, uses=uses, remedy=remedy)


def _missing(feature: str, why: str, remedy: str) -> Mechanism:
    return Mechanism(feature=feature, status=Status.MISSING, uses=why, remedy=remedy)


_DATA_PATH_REMEDY = "apt-get install clang libbpf-dev libbpf1; Linux 6.1 or newer with CONFIG_DEBUG_INFO_BTF"


def _data_path(machine: _Machine, feature: str, *needed: str) -> Mechanism | None:
    """Return what keeps the eBPF data path, and `needed` besides, from working; None for nothing."""
    lacking = machine.lacking("qdisc.htb", "qdisc.clsact", "classifier.bpf", "ebpf.port programs", *needed)
    return _missing(feature, lacking, _DATA_PATH_REMEDY) if lacking else None


def _by_kernel(feature: str, uses: str, answer: str, option: str) -> Callable[[_Machine], Mechanism]:
    """A feature that the kernel has, or lacks for want of one option."""

    def choose(machine: _Machine) -> Mechanism:
        lacking = machine.lacking(answer)
        return _missing(feature, lacking, machine.option(option)) if lacking else _ok(feature, uses)

    return choose


def _by_data_path(feature: str, uses: str, *needed: str) -> Callable[[_Machine], Mechanism]:
    """A feature of the eBPF data path, which needs these answers besides."""
    return lambda machine: _data_path(machine, feature, *needed) or _ok(feature, uses)


def _ecn(machine: _Machine) -> Mechanism:
    if without := _data_path(machine, "ECN (WRED)", "ebpf.bpf_skb_ecn_set_ce"):
        return without
    titles = [marker.title for marker in KERNEL_MARKERS if machine.capabilities.works(marker.capability)]
    absent = " or ".join(marker.title for marker in KERNEL_MARKERS)
    check = f"{' and '.join(titles)} as a cross-check" if titles else f"no {absent} to cross-check with"
    return _ok("ECN (WRED)", f"eBPF marker on the instantaneous queue; {check}")


def _pfc(machine: _Machine) -> Mechanism:
    if without := _data_path(machine, "PFC", "qdisc.tbf", "ebpf.ring buffer", "ebpf.tp_btf qdisc_dequeue"):
        return without
    if lacking := machine.lacking("process.SCHED_FIFO", "process.mlock"):
        return _degraded(
            "PFC",
            f"802.1Qbb frames by portd, TBF gates; slower reaction ({lacking})",
            "start with CAP_SYS_NICE and CAP_IPC_LOCK, or outside of the container",
        )
    return _ok("PFC", "802.1Qbb frames by portd in real time; TBF gates")


def _balancing(machine: _Machine) -> Mechanism:
    feature = "load balancing"
    policy = machine.lacking("sysctl.multipath policy")
    if policy:
        return _missing(feature, policy, "Linux 5.12 or newer with CONFIG_IP_ROUTE_MULTIPATH")
    without = _data_path(machine, feature, "ebpf.bpf_set_hash")
    if without is None:
        by_hash = "flow, flowlet, spray by eBPF hash over policy 1"
        if machine.lacking("ebpf.paths of packets"):
            return _ok(feature, f"{by_hash}; not adaptive or static, as no program sees the kernel's paths")
        return _ok(feature, by_hash.replace("spray", "spray, adaptive, static"))
    seeded = machine.capabilities.works("sysctl.multipath seed")
    return _degraded(
        feature,
        f"flow only: the kernel's hash, policy 3, {'seeded' if seeded else 'without a seed: tiers polarise'}",
        without.remedy,
    )


def _delay(machine: _Machine) -> Mechanism:
    wire = machine.capabilities.wire
    option, _ = wire.missing(has_qos=False)
    if option:
        uses = "endpoint: our own transports hold packets; TCP and rxe get none"
        return _degraded("wire delay", uses, machine.option(option))
    newer, why = wire.missing(has_qos=True)
    if newer:
        uses = f"kernel: netem on an ifb; with qos: endpoint, for want of {newer} ({why})"
        return _degraded("wire delay", uses, f"a kernel from {newer} on")
    return _ok("wire delay", "kernel: netem on an ifb at the receiving port")


def _link_set(machine: _Machine) -> Mechanism:
    if lacking := machine.lacking("qdisc.htb"):
        return _missing("link set", lacking, machine.option("CONFIG_NET_SCH_HTB"))
    without = _data_path(machine, "link set")
    if without is not None:
        return _degraded("link set", "rate, down and up; no loss", without.remedy)
    return _ok("link set", "rate by HTB; loss, corruption, silence by eBPF maps")


def _congestion_control(machine: _Machine) -> Mechanism:
    usable = [name for name, why in machine.capabilities.group("tcp").items() if not why]
    if "dctcp" in usable:
        return _ok("TCP with ECN", f"DCTCP; also {', '.join(name for name in usable if name != 'dctcp')}")
    return _degraded(
        "TCP with ECN", f"{', '.join(usable)} with tcp_ecn=1; no DCTCP", machine.option("CONFIG_TCP_CONG_DCTCP")
    )


def _rdma(machine: _Machine) -> Mechanism:
    feature = "soft RDMA"
    if lacking := machine.lacking("rdma.rxe"):
        return _missing(feature, lacking, "the lab VM, or Linux 7.1 or newer with CONFIG_RDMA_RXE")
    if machine.lacking("rdma.rxe in namespaces"):
        return _missing(feature, "rxe, but not inside nodes before Linux 7.1", "the lab VM, or Linux 7.1 or newer")
    if not machine.has("ib_write_bw"):
        return _degraded(feature, "rxe in each node; no perftest", "apt-get install perftest")
    return _ok(feature, "rxe in each node, perftest")


def _targets(machine: _Machine) -> Mechanism:
    feature = "NVMe/TCP targets"
    # drivers/nvme/target/rdma.c and host/rdma.c call rdma_create_id(&init_net, ...), on every kernel so far (7.3)
    rdma = "not over RDMA, which the kernel has in the machine's own namespace alone"
    if why := machine.capabilities.why("storage.nvmet"):
        return _ok(feature, f"in user space; none by the kernel: {why}, the lab VM's has it; {rdma}")
    return _ok(feature, f"in user space; by the kernel (nvmet-tcp) with `served_by: kernel`; {rdma}")


_VM_REMEDY = "apt-get install mmdebstrap debian-archive-keyring e2fsprogs; then testbed vm build"


def _vm(machine: _Machine) -> Mechanism:
    """QEMU comes with the image, out of Debian's registry."""
    if not machine.has("mmdebstrap"):
        return _missing("lab VM", "nothing to build its image with", _VM_REMEDY)
    if why := machine.capabilities.why("vm.KVM"):
        return _degraded(
            "lab VM",
            f"testbed vm up: QEMU emulation, 10 to 15 times slower ({why})",
            "enable virtualisation in the firmware, or nested virtualisation in the hypervisor",
        )
    return _ok("lab VM", "testbed vm up: QEMU with KVM, if a kernel starts under it")


def _virtual_time(machine: _Machine) -> Mechanism:
    if not machine.has("mmdebstrap"):
        return _missing("virtual time", "nothing to build the lab VM's image with", _VM_REMEDY)
    return _ok("virtual time", "testbed --on vm --clock virtual: QEMU counting instructions (TCG, icount)")


def _docker(machine: _Machine) -> Mechanism:
    if machine.docker:
        return _missing("docker nodes", machine.docker, "apt-get install docker.io, and start it")
    return _ok(
        "docker nodes", "the engine of this machine, through its socket; `testbed images build` makes the images"
    )


def _mininet(machine: _Machine) -> Mechanism:
    if lacking := machine.lacking("python.mininet"):
        return _missing("mininet nodes", lacking, mininet_package.HINT)
    return _ok("mininet nodes", "Mininet's hosts, links and FRR switches over the same plan")


def _bgp(machine: _Machine) -> Mechanism:
    if machine.frr is None:
        return _missing("BGP", "no usable FRR", "apt-get install frr")
    return _ok("BGP", f"FRR {machine.frr.version_text}, unnumbered, ECMP")


def _bfd(machine: _Machine) -> Mechanism:
    if machine.frr is None or "bfdd" not in machine.frr.daemons:
        return _missing("BFD", "no bfdd", "apt-get install frr")
    return _ok("BFD", f"bfdd of FRR {machine.frr.version_text}")


def _vrfs(machine: _Machine) -> Mechanism:
    if lacking := machine.lacking("link.vrf"):
        return _ok("VRFs of tenants", f"a namespace for each: no VRF devices ({lacking})")
    return _ok("VRFs of tenants", "VRF devices of the kernel")


def _link_groups(machine: _Machine) -> Mechanism:
    if lacking := machine.lacking("link.bond"):
        return _ok("link groups of hosts", f"eBPF, and a process for LACP: no bonding ({lacking})")
    return _ok("link groups of hosts", "bonds of the kernel")


_FEATURES: tuple[Callable[[_Machine], Mechanism], ...] = (
    _bgp,
    _bfd,
    _by_kernel("shaping", "HTB line class", "qdisc.htb", "CONFIG_NET_SCH_HTB"),
    _by_data_path("classes, buffers", "HTB classes; eBPF admission by bytes"),
    _ecn,
    _pfc,
    _by_data_path("trimming", "eBPF at clsact egress", "ebpf.bpf_skb_change_tail", "ebpf.bpf_redirect"),
    _balancing,
    _delay,
    _by_data_path("wire loss", "eBPF at the receiving port: loss, corruption, silence"),
    _link_set,
    _vrfs,
    _link_groups,
    _by_kernel(
        "guards of access ports",
        "nf_tables at the ports' ingress, in one transaction for each switch",
        "filter.guards",
        "CONFIG_NF_TABLES_NETDEV",
    ),
    _by_kernel(
        "out-of-band management",
        "a bridge with isolated ports, and nf_tables on each node",
        "filter.management",
        "CONFIG_NF_TABLES_IPV4",
    ),
    _by_kernel(
        "passwords of BGP",
        "TCP MD5 signatures by the kernel, a password for each lab",
        "socket.md5",
        "CONFIG_TCP_MD5SIG",
    ),
    _congestion_control,
    _rdma,
    _targets,
    _docker,
    _mininet,
    _vm,
    _virtual_time,
)
