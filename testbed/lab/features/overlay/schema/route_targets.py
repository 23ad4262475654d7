"""The keys `route_target`, `route_targets` and `rd` of a tenant: as they are written, and held against other tenants.

A VRF takes up the routes that have a route target which it imports, whoever exported them. So a route target that one
tenant imports and another one exports is a leak, unless the two talk to each other (`talks_to`); and no two export the
same, since whose routes they are could not be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address

from pydantic.json_schema import JsonSchemaValue

from testbed.base.errors import Problem
from testbed.base.names import check_node_name, nearest
from testbed.base.validation.fields import Checked
from testbed.base.validation.model import refusal
from testbed.base.yaml.paths import Path, format_path, quote
from testbed.lab.core.model import Tenant
from testbed.lab.features.overlay.schema.talks import ProblemAt

MOST_TARGETS = 32
"""In one list: they are meant for people."""
_NUMBERS = re.compile(r"(\d{1,10}):(\d{1,10})")
_ADDRESS = re.compile(r"(\d{1,3}(?:\.\d{1,3}){3}):(\d{1,10})")
_KEYS = {
    "import": "Lists the route targets of routes that its VRFs take up.",
    "export": "Lists the route targets that its VRFs give their routes.",
}
"""With what each says to editors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTargets:
    """The route targets that the VRFs of a tenant import and export, at least one each."""

    imports: tuple[str, ...]
    exports: tuple[str, ...]


def _numbers(match: re.Match[str]) -> str | None:
    """`AS:NUMBER` in its shortest form; None where it has no room in six bytes, AS and number together."""
    asn, number = int(match[1]), int(match[2])
    if not 0 < asn < 1 << 32 or number >= (1 << 32 if asn < 1 << 16 else 1 << 16):
        return None
    return f"{asn}:{number}"


def _route_target(value: object) -> str:
    match = _NUMBERS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise refusal(
            "bad-route-target",
            f'must be a route target such as "65000:50001", not {quote(value)}',
            "put it in quotes",
        )
    if (found := _numbers(match)) is None:
        raise refusal(
            "bad-route-target",
            f"{quote(value)} does not fit a route target",
            "AS up to 65535 with a number of 32 bits, or AS up to 4294967295 with a number of 16",
        )
    return found


@dataclass(frozen=True, slots=True)
class RouteTargetField(Checked):
    """A route target, `AS:NUMBER` (RFC 4360 section 4, RFC 5668 for an AS of four bytes)."""

    def check(self, value: object) -> str:
        return _route_target(value)

    @property
    def type_name(self) -> str:
        return "RouteTarget"

    def json_schema(self) -> JsonSchemaValue:
        return {"type": "string", "pattern": rf"^{_NUMBERS.pattern}$", "examples": ["65000:50001"]}


@dataclass(frozen=True, slots=True)
class RouteTargetsField(Checked):
    """`{import: [...], export: [...]}`."""

    def check(self, value: object) -> RouteTargets:
        if not isinstance(value, dict):
            raise refusal(
                "wrong-type",
                f"must be a mapping with import and export, not {quote(value)}",
                'route_target: "65000:7" is short for one that is imported and exported',
            )
        for key in value:
            if key not in _KEYS:
                meant = nearest(str(key), _KEYS)
                hint = f"did you mean {meant!r}?" if meant else "it has import and export"
                raise refusal("unknown-key", f"unknown key {quote(key)}", hint)
        return RouteTargets(imports=self._targets(value, "import"), exports=self._targets(value, "export"))

    def _targets(self, value: Mapping[str, object], key: str) -> tuple[str, ...]:
        listed = value.get(key)
        if not isinstance(listed, list) or not listed:
            raise refusal("missing-key", f"{key} must be a list of route targets", f'{key}: ["65000:50001"]')
        if len(listed) > MOST_TARGETS:
            raise refusal("out-of-range", f"{key} has {len(listed)} route targets, the most are {MOST_TARGETS}")
        return tuple(dict.fromkeys(_route_target(item) for item in listed))

    @property
    def type_name(self) -> str:
        return "RouteTargets"

    def json_schema(self) -> JsonSchemaValue:
        one = {"type": "array", "minItems": 1, "items": RouteTargetField().json_schema()}
        return {
            "type": "object",
            "properties": {key: {**one, "description": said} for key, said in _KEYS.items()},
            "required": [*_KEYS],
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class RouteDistinguishersField(Checked):
    """Route distinguishers by switch, `AS:NUMBER` or `ADDRESS:NUMBER` (RFC 4364 section 4.2)."""

    def check(self, value: object) -> dict[str, str]:
        if not isinstance(value, dict) or not value:
            raise refusal(
                "wrong-type",
                f"must map switches to route distinguishers, not {quote(value)}",
                'one VRF on each leaf, each with its own: rd: {LEAF: "65000:7"}',
            )
        found: dict[str, str] = {}
        for switch, rd in value.items():
            try:
                check_node_name(str(switch))
            except ValueError as error:
                raise refusal("bad-name", str(error)) from error
            text = _distinguisher(rd)
            if text is None:
                raise refusal(
                    "bad-rd",
                    f"{quote(rd)} is not a route distinguisher",
                    '"AS:NUMBER" such as "65000:7", or "ADDRESS:NUMBER" such as "192.0.2.1:7", in six bytes',
                    key=str(switch),
                )
            found[str(switch)] = text
        return found

    @property
    def type_name(self) -> str:
        return "RouteDistinguishers"

    def json_schema(self) -> JsonSchemaValue:
        pattern = rf"^(?:{_NUMBERS.pattern}|{_ADDRESS.pattern})$"
        return {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": "string", "pattern": pattern, "examples": ["192.0.2.1:7"]},
        }


def _distinguisher(value: object) -> str | None:
    """A route distinguisher in its shortest form; None where it is none."""
    if not isinstance(value, str):
        return None
    if match := _NUMBERS.fullmatch(value):
        return _numbers(match)
    match = _ADDRESS.fullmatch(value)
    if match is None or int(match[2]) >= 1 << 16:
        return None
    try:
        return f"{IPv4Address(match[1])}:{int(match[2])}"
    except AddressValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetsOf:
    """The route targets of a tenant, and where the file has them: its own keys, or the tenant where they are by rule.

    `doubtful` where they follow a VNI that is another's, too, which is reported as such.
    """

    tenant: Tenant
    import_path: Path
    export_path: Path
    doubtful: bool = False


def targets_of(tenant: Tenant, *, written: str | None, doubtful: bool) -> TargetsOf:
    """Return a tenant's targets for `check_route_targets`: those that the key `written` gives (None: by rule)."""
    path: Path = ("tenants", tenant.name)
    match written:
        case "route_targets":
            imported, exported = ((*path, written, key) for key in _KEYS)
            return TargetsOf(tenant=tenant, import_path=imported, export_path=exported)
        case None:
            return TargetsOf(tenant=tenant, import_path=path, export_path=path, doubtful=doubtful)
    return TargetsOf(tenant=tenant, import_path=(*path, written), export_path=(*path, written))


def check_route_targets(
    tenants: Sequence[TargetsOf], of_subnets: Mapping[str, Path], problem: ProblemAt
) -> Iterator[Problem]:
    """Report what would leak between tenants by their route targets; `of_subnets` are those of L2VNIs, by rule."""
    owners: dict[str, Path] = {}
    for one in tenants:
        if one.doubtful:
            continue
        tenant = one.tenant
        for target in dict.fromkeys((*tenant.exports, *tenant.imports)):
            place = one.export_path if target in tenant.exports else one.import_path
            owner = of_subnets.get(target) or (owners.get(target) if target in tenant.exports else None)
            if owner is not None:
                message = f"the route target {target} is that of {format_path(owner)}, too"
                yield problem("duplicate-route-target", place, message, "routes of one would be taken up by the other")
        if set(tenant.exports).isdisjoint(tenant.imports):
            message = f"{tenant.name} imports nothing of what it exports: its leaves would not learn of each other"
            yield problem("route-targets-apart", one.import_path, message, f'import "{tenant.exports[0]}", too')
        for target in tenant.exports:
            owners.setdefault(target, ("tenants", tenant.name))
    yield from _leaks([one for one in tenants if not one.doubtful], problem)


def _leaks(tenants: Sequence[TargetsOf], problem: ProblemAt) -> Iterator[Problem]:
    """Yield route targets that one tenant imports and another one exports, the two not talking to each other."""
    for one in tenants:
        for other in tenants:
            a, b = one.tenant, other.tenant
            if a is b or a.services_of(b.name) is not None or b.services_of(a.name) is not None:
                continue
            for target in a.imports:
                if target not in b.exports or target in a.exports:  # what both export is a problem of its own
                    continue
                yield problem(
                    "route-target-leak",
                    one.import_path,
                    f"{a.name} imports {target}, which {b.name} exports",
                    f"routes of {b.name} would be taken up by {a.name}: add talks_to: [{b.name}], or remove it",
                )
