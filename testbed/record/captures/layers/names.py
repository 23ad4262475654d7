"""The names of protocols that are not decoded here, for the account of what was left alone.

Source: IANA's registries of EtherTypes (IEEE 802 numbers), protocol numbers, and service names and port numbers.
"""

from __future__ import annotations

from typing import Final

_ETHERTYPES: Final = {
    0x0806: "ARP",
    0x8035: "RARP",
    0x8137: "IPX",
    0x8808: "MAC control",
    0x8809: "LACP",
    0x8847: "MPLS",
    0x8848: "MPLS",
    0x8863: "PPPoE",
    0x8864: "PPPoE",
    0x888E: "802.1X",
    0x88B5: "local experimental 1",
    0x88B6: "local experimental 2",
    0x88CC: "LLDP",
    0x88E5: "MACsec",
    0x88E7: "802.1ah",
    0x88F7: "PTP",
    0x8902: "CFM",
    0x8906: "FCoE",
    0x8914: "FIP",
    0x8915: "RoCEv1",
    0x9000: "loopback test",
}
_FIRST_ETHERTYPE: Final = 0x0600
"""Smaller numbers are lengths of IEEE 802.3 frames with LLC, as spanning tree has them."""

_PROTOCOLS: Final = {
    1: "ICMP",
    2: "IGMP",
    6: "TCP",
    17: "UDP",
    33: "DCCP",
    50: "ESP",
    58: "ICMPv6",
    59: "no next header",
    88: "EIGRP",
    89: "OSPF",
    103: "PIM",
    112: "VRRP",
    115: "L2TP",
    132: "SCTP",
    137: "MPLS",
}

_TCP_PORTS: Final = {
    22: "SSH",
    53: "DNS",
    80: "HTTP",
    111: "portmap",
    179: "BGP",
    443: "HTTPS",
    2049: "NFS",
    4420: "NVMe",
    5201: "iperf3",
    8009: "NVMe",
    9339: "gNMI",
    10809: "NBD",
    18515: "perftest",
}
_UDP_PORTS: Final = {
    53: "DNS",
    67: "DHCP",
    68: "DHCP",
    123: "NTP",
    161: "SNMP",
    162: "SNMP",
    319: "PTP",
    320: "PTP",
    514: "syslog",
    546: "DHCPv6",
    547: "DHCPv6",
    1812: "RADIUS",
    1813: "RADIUS",
    3784: "BFD",
    3785: "BFD",
    4784: "BFD",
    5353: "mDNS",
    6343: "sFlow",
    6784: "BFD",
    18516: "probe",
}


def name_ethertype(number: int) -> str:
    """The name of what a frame carries by its EtherType, or its length where it has that instead."""
    if number < _FIRST_ETHERTYPE:
        return "LLC"
    return _ETHERTYPES.get(number, f"EtherType {number:#06x}")


def name_protocol(number: int) -> str:
    """The name of what an IP packet carries by its protocol number (IPv6: its last next header)."""
    return _PROTOCOLS.get(number, f"IP protocol {number}")


def name_tcp(source: int, destination: int) -> str:
    """ "BGP/TCP" by the well-known port at either end, or "TCP"."""
    name = _TCP_PORTS.get(destination) or _TCP_PORTS.get(source)
    return f"{name}/TCP" if name else "TCP"


def name_udp(source: int, destination: int) -> str:
    """ "BFD" by the well-known port at either end, or "UDP"."""
    return _UDP_PORTS.get(destination) or _UDP_PORTS.get(source) or "UDP"
