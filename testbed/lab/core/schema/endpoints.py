"""The types of keys that name an end of a link, or a prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import Annotated

from pydantic.json_schema import JsonSchemaValue

from testbed.base.names import MAX_INTERFACE_NAME, NODE_NAME, check_interface_name, check_node_name, fitting_name
from testbed.base.validation.fields import Checked, renaming_hint
from testbed.base.validation.model import refusal
from testbed.base.yaml.paths import quote
from testbed.lab.core.model import End


@dataclass(frozen=True, slots=True)
class Endpoint(Checked):
    """ "node:interface" as an `End`."""

    def check(self, value: object) -> End:
        if not isinstance(value, str):
            hint: str | None = 'write for example "h1:eth1"'
            match value:
                case {"node": str(node), "interface": str(interface)}:
                    hint = f'write "{node}:{interface}"'
            raise refusal("bad-endpoint", f"must be node:interface, not {quote(value)}", hint)
        node, colon, interface = value.partition(":")
        if not colon or not node or not interface:
            hint = f'write for example "{node if NODE_NAME.match(value) else "h1"}:eth1"'
            if _TWO_ENDS.search(value):
                hint = 'write the port at one of its ends, such as "leaf1:eth1"'
            raise refusal("bad-endpoint", f"{quote(value)} is not node:interface", hint)
        for name, rule, longest in ((interface, check_interface_name, MAX_INTERFACE_NAME), (node, check_node_name, 48)):
            try:
                rule(name)
            except ValueError as error:
                hint = renaming_hint(fitting_name(name, longest), rule)
                message = str(error) if len(value) <= 100 else f"{quote(value)} is too long for node:interface"
                raise refusal("bad-name", message, hint) from error
        return End(node=node, interface=interface)

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": r"^[a-z][a-z0-9-]{0,47}:(?!lo$)[a-z][a-z0-9_.-]{0,14}$"}


_TWO_ENDS = re.compile(r"--|<->|->|\s-\s")
"""Stands between the ends of a link where both are written."""
SPECIAL_PREFIXES = {
    "'this network' (RFC 1122)": IPv4Network("0.0.0.0/8"),
    "loopback addresses (RFC 1122)": IPv4Network("127.0.0.0/8"),
    "link-local addresses (RFC 3927)": IPv4Network("169.254.0.0/16"),
    "multicast and reserved addresses (RFC 5771, RFC 1112)": IPv4Network("224.0.0.0/3"),
}
"""Prefixes that no link has, by what they are for."""


@dataclass(frozen=True, slots=True)
class Prefix(Checked):
    """An IPv4 prefix of at most `longest` bits. `too_long` says why no longer one will do."""

    longest: int = 31
    too_long: str = "has no room for the two ends of a link"

    def check(self, value: object) -> IPv4Network:
        if not isinstance(value, str) or "/" not in value:
            raise refusal("bad-prefix", f"must be an IPv4 prefix such as 192.0.2.0/31, not {quote(value)}")
        try:
            network = IPv4Network(value, strict=False)
        except ValueError as error:
            ipv6 = ":" in value
            hint = "subnets of tenants alone have IPv6, by their key prefix6" if ipv6 else None
            raise refusal("bad-prefix", f"{quote(value)} is not an IPv4 prefix such as 192.0.2.0/31", hint) from error
        if str(network.network_address) != value.partition("/")[0]:
            raise refusal("bad-prefix", f"{quote(value)} is an address within {network}", f"write {network}")
        if network.prefixlen > self.longest:
            raise refusal("bad-prefix", f"{network} {self.too_long}", f"use a /{self.longest} or shorter")
        return network

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+/\d+$"}


_UNICAST = (IPv6Network("2000::/3"), IPv6Network("fc00::/7"))
"""Global unicast (RFC 4291 section 2.4) and unique local addresses (RFC 4193): what is routed, and may repeat."""


@dataclass(frozen=True, slots=True)
class Prefix6(Checked):
    """An IPv6 prefix of 64 bits, as that of a subnet is (RFC 4291 section 2.5.4)."""

    def check(self, value: object) -> IPv6Network:
        if not isinstance(value, str) or "/" not in value:
            raise refusal("bad-prefix", f"must be an IPv6 prefix such as fd00:1::/64, not {quote(value)}")
        try:
            network = IPv6Network(value, strict=False)
        except ValueError as error:
            hint = "prefix has that of IPv4" if "." in value and ":" not in value else None
            raise refusal("bad-prefix", f"{quote(value)} is not an IPv6 prefix such as fd00:1::/64", hint) from error
        if network.prefixlen != 64:
            message = f"{network} has no 64 bits, as the prefix of a subnet has (RFC 4291)"
            raise refusal("bad-prefix", message, f"write {network.network_address}/64")
        if IPv6Address(value.partition("/")[0]) != network.network_address:
            raise refusal("bad-prefix", f"{quote(value)} is an address within {network}", f"write {network}")
        if not any(network.subnet_of(whole) for whole in _UNICAST):
            message = f"{network} has no addresses that are routed to one host"
            raise refusal("bad-prefix", message, "take one of 2000::/3 (global) or fd00::/8 (unique local)")
        return network

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": r"^[0-9a-fA-F:]+/64$"}


EndpointField = Annotated[End, Endpoint()]
