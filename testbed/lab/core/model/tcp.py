"""The congestion control of the kernel's TCP in a lab, as the kernel names it."""

DEFAULT_TCP_CC = "cubic"
"""The congestion control of TCP in a lab, whatever the machine's own is (RFC 9438)."""
FALLBACK_TCP_CC = "reno"
"""That of a lab on a kernel without the default; every kernel has it (net/ipv4/tcp_cong.c)."""
TCP_CCS = (
    *("reno", "cubic", "bbr", "bbr2", "bbr3", "dctcp", "bic", "cdg", "highspeed", "htcp", "hybla", "illinois", "lp"),
    *("nv", "scalable", "vegas", "veno", "westwood", "yeah"),
)
"""The congestion controls that kernels have (net/ipv4/Kconfig, and Google's branches of BBR), if not each of them."""
