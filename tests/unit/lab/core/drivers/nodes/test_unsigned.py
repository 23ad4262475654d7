"""The count of unsigned segments in the text of /proc/net/netstat."""

from testbed.lab.core.drivers.nodes.unsigned import parse_unsigned

TEXT = """TcpExt: SyncookiesSent TCPMD5NotFound TCPMD5Failure
TcpExt: 1 23 4
IpExt: InNoRoutes
IpExt: 5
"""


def test_the_value_below_the_name() -> None:
    assert parse_unsigned(TEXT) == 23


def test_a_kernel_that_does_not_count_counts_none() -> None:
    assert parse_unsigned(TEXT.replace("TCPMD5NotFound", "TCPOther")) == 0
