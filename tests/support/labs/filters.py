"""Work inside a node of a running lab, and its tables of nftables: taken away, and put back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from testbed.base.linux.namespaces import in_namespace
from testbed.base.linux.nftables import NFPROTO_NETDEV, SUBSYSTEM, NetfilterSocket, message, text
from testbed.base.names import namespace_name


def in_node(lab: Any, node: str, work: Callable[[], Any]) -> Any:
    """Do `work` in a thread in the network namespace of a node or a VRF."""
    return in_namespace(namespace_name(lab.name, node), work)


def commit(lab: Any, node: str, batch: Sequence[bytes]) -> None:
    """Have a node's kernel do all of `batch`, in one step."""

    def put() -> None:
        with closing(NetfilterSocket()) as filters:
            filters.commit(batch, "a test")

    in_node(lab, node, put)


DELTABLE = 2
"""NFT_MSG_DELTABLE of linux/netfilter/nf_tables.h."""


def remove_table(lab: Any, node: str, table: str, family: int = NFPROTO_NETDEV) -> None:
    """Take a table away, with all that is in it."""
    commit(lab, node, [message(SUBSYSTEM | DELTABLE, 0, struct.pack("!BBH", family, 0, 0) + text(1, table))])
