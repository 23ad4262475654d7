"""One port's QoS while its layers are joined: every value with the place it was written at.

A draft begins empty or with a preset, takes the keys of one layer after the other, and is built into a `QosProfile`;
what does not fit together is a problem at the key that was written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.base.datapath.abi import CLASSES
from testbed.base.datapath.markers import DOES_TO_QUEUE, MARKERS
from testbed.base.errors import Problem
from testbed.base.keys import keys_of, made_of, said_in, types_of
from testbed.base.units import ByteCount
from testbed.base.validation.model import SpecModel
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.core.fabric import QOS_PRESETS
from testbed.lab.core.model import (
    AdaptPer,
    BalancingMode,
    HashEngine,
    LoadBalancing,
    MarkAt,
    MarkBy,
    QosProfile,
    TrafficClass,
)
from testbed.lab.core.schema.qos.spec import Hashing, QosSettings

CUSTOM = "custom"
"""The preset of a file that names none."""
BEST_EFFORT = "best-effort"


@dataclass(frozen=True, slots=True)
class Value:
    """A value and where it comes from. `layer` is its place in the chain of layers; `preset`: a preset gave it."""

    value: Any
    layer: int
    path: Path
    preset: bool = False

    def written_over(self, other: Value | None) -> bool:
        """Tell whether the file says this no earlier than `other`: it is not just inherited from below it."""
        return not self.preset and (other is None or self.layer >= other.layer)


Keys = dict[str, Value]


@dataclass(slots=True)
class Draft:
    """Settings of one chain of layers. `problems` has what `build` finds."""

    document: Document
    preset: str = CUSTOM
    origin: Path = ("qos",)
    classes: dict[str, Keys] = field(default_factory=dict)
    values: Keys = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    # ------------------------------------------------------------------ joining

    def take(self, layer: int, path: Path, settings: QosSettings) -> None:
        """Put the keys written in `settings`, which stand at `path`, over those taken before."""
        if settings.preset is not None:
            self._take_preset(layer, (*path, "preset"), settings.preset)
        for name, item in settings.classes.items():
            at: Path = (*path, "classes", name)
            keys = self.classes.setdefault(name, {"name": Value(name, layer, at)})
            _take_keys(keys, layer, at, TrafficClass, item)
        _take_keys(self.values, layer, path, QosProfile, settings)

    def _take_preset(self, layer: int, path: Path, name: str) -> None:
        """Begin anew with a preset: whatever outer layers said is gone."""
        profile = QOS_PRESETS[name].profile
        self.preset, self.origin = name, path

        def said(section: TrafficClass | QosProfile, **more: str) -> Keys:
            return {key: Value(value, layer, path, preset=True) for key, value in (*more.items(), *said_in(section))}

        self.classes = {item.name: said(item, name=item.name) for item in profile.classes}
        self.values = said(profile)

    # ------------------------------------------------------------------ building

    def build(self) -> QosProfile | None:
        """The profile; None where `problems` has any."""
        before = len(self.problems)
        classes = self._build_classes()
        self._check_balancing()
        if len(self.problems) > before:
            return None
        values = _plain(self.values)
        hashing = values.pop("hash", Hashing())
        profile = QosProfile(preset=self.preset, classes=classes, **made_of(QosProfile, values | {"hash": hashing.by}))
        balancing = replace(profile.load_balancing, hash_fields=hashing.fields)
        return replace(profile, load_balancing=balancing)

    def where(self, name: str, key: str) -> Path:
        """Return where a key of a class was written; the class itself, or the preset, where it was not."""
        keys = self.classes.get(name, {})
        value = keys.get(key) or keys.get("name")
        return value.path if value is not None else self.origin

    def where_buffer(self) -> Path:
        """Return where the size of the buffer was written."""
        value = self.values.get("shared")
        return value.path if value is not None else self.origin

    def _check_balancing(self) -> None:
        default = LoadBalancing()
        mode, engine = _of(self.values, "mode", default.mode), _of(self.values, "hash", Hashing()).by
        written_mode, gap, hashed = self.values.get("mode"), self.values.get("gap"), self.values.get("hash")
        adaptive, per = mode == BalancingMode.ADAPTIVE, _of(self.values, "per", default.per)
        has_flowlets = mode == BalancingMode.FLOWLET or (adaptive and per == AdaptPer.FLOWLET)
        if gap is not None and not has_flowlets and gap.written_over(written_mode):
            which = "per: flowlet" if adaptive else "mode: flowlet"
            why = f"the mode is {mode}" + (f" per {per}" if adaptive else "")
            self._refuse(
                "gap-without-flowlet",
                gap.path,
                f"a gap means something with {which} alone, and {why}",
                f"write {which}, or remove the gap",
                key=True,
            )
        for name in ("per", "hysteresis"):
            said = self.values.get(name)
            if said is not None and not adaptive and said.written_over(written_mode):
                self._refuse(
                    "not-adaptive",
                    said.path,
                    f"{name} means something with mode: adaptive alone, and the mode is {mode}",
                    f"write mode: adaptive, or remove {name}",
                    key=True,
                )
        if engine == HashEngine.KERNEL and mode != BalancingMode.FLOW and hashed is not None:
            at = written_mode if written_mode is not None and written_mode.written_over(hashed) else hashed
            self._refuse(
                "kernel-hash",
                at.path,
                f"the kernel's hash knows flows alone; mode {mode} needs hash: ebpf",
                "remove hash: kernel, or write mode: flow",
            )

    def _build_classes(self) -> tuple[TrafficClass, ...]:
        if not self.classes:
            return (TrafficClass(name=BEST_EFFORT, priority=0, default=True, weight=100),)
        if len(self.classes) > CLASSES:
            extra = list(self.classes)[CLASSES]
            self._refuse(
                "too-many-classes",
                self.where(extra, "name"),
                f"{extra!r} is the ninth class; IEEE 802.1Q has {CLASSES} priorities",
                "join two classes into one by their DSCPs",
                key=True,
            )
            return ()
        self._check_default()
        self._check_dscps()
        priorities = self._priorities()
        weights = self._weights()
        built = [
            TrafficClass(name=name, **made_of(TrafficClass, self._rules(name, keys, priorities, weights)))
            for name, keys in self.classes.items()
        ]
        return tuple(sorted(built, key=lambda item: item.priority))

    def _rules(
        self, name: str, keys: Keys, priorities: Mapping[str, int], weights: Mapping[str, int]
    ) -> dict[str, Any]:
        """The rules of a class by key, after those that do not go together are refused."""
        rules = _plain(keys) | {"pcp": priorities.get(name, 0), "weight": weights.get(name, 0)}
        if rules.get("lossless"):
            self._check_limit(name, keys)
            self._check_pauses(name, rules)
            rules = {"pfc": "auto"} | rules | {"limit": None}
        else:
            self._check_lossy(name, keys)
            rules["pfc"] = None
        if rules.get("ecn"):
            self._check_curve(name, keys, rules)
        return rules

    def _check_default(self) -> None:
        defaults = [keys["default"] for keys in self.classes.values() if _of(keys, "default", False)]
        if not defaults:
            self._refuse(
                "no-default",
                self._classes_path(),
                "no class is the default, so packets of other DSCPs have no queue",
                "write default: true in one of them",
                key=True,
            )
        if len(defaults) > 1:
            names = [name for name, keys in self.classes.items() if _of(keys, "default", False)]
            self._refuse(
                "two-defaults",
                _last(*defaults).path,
                f"{' and '.join(map(repr, names))} are both the default",
                "write default: false in all but one of them",
            )

    def _check_dscps(self) -> None:
        owners: dict[int, tuple[str, Value]] = {}
        for name, keys in sorted(self.classes.items(), key=lambda entry: _is_written(entry[1], "dscp")):
            written = keys.get("dscp")
            for index, code_point in enumerate(written.value if written is not None else ()):
                assert written is not None
                owner = owners.setdefault(code_point, (name, written))
                if owner[1] is written and written.value.index(code_point) == index:
                    continue
                whose = f"of {owner[0]!r}" if owner[0] != name else "above"
                of_preset = f"it is the preset's; write {owner[0]}: {{dscp: [...]}} without it, or remove it here"
                self._refuse(
                    "duplicate-dscp",
                    written.path if written.preset else (*written.path, index),
                    f"DSCP {code_point} is one {whose} already",
                    of_preset if owner[1].preset and owner[0] != name else "a DSCP belongs to one class",
                )

    def _priorities(self) -> dict[str, int]:
        """Return those written, else the class selector of the first DSCP, 0 for the default, or the next one free."""
        chosen: dict[str, int] = {}
        for name, keys in sorted(self.classes.items(), key=lambda entry: _is_written(entry[1], "pcp")):
            written = keys.get("pcp")
            if written is None:
                continue
            other = next((known for known, priority in chosen.items() if priority == written.value), None)
            if other is not None:
                free = sorted(set(range(CLASSES)) - set(chosen.values()))
                self._refuse(
                    "duplicate-priority",
                    written.path,
                    f"{name!r} and {other!r} have the same priority {written.value}",
                    f"free are {', '.join(map(str, free))}",
                )
            chosen[name] = written.value
        for name, keys in self.classes.items():
            if name in chosen:
                continue
            code_points = _of(keys, "dscp", ())
            wanted = code_points[0] >> 3 if code_points else 0 if _of(keys, "default", False) else None
            taken = set(chosen.values())
            if wanted is None or wanted in taken:
                wanted = next((number for number in range(CLASSES) if number not in taken), 0)
            chosen[name] = wanted
        return chosen

    def _weights(self) -> dict[str, int]:
        """Percentages of the classes that are not strict: as written, or equal where none is."""
        shared: dict[str, Value | None] = {}
        for name, keys in self.classes.items():
            weight = keys.get("weight")
            if not _of(keys, "strict", False):
                shared[name] = weight
            elif weight is not None and weight.written_over(keys["strict"]):
                self._refuse(
                    "weight-of-strict",
                    weight.path,
                    f"{name!r} is strict: it goes first whatever the others weigh",
                    "remove the weight, or strict: true",
                    key=True,
                )
        written = {name: weight for name, weight in shared.items() if weight is not None}
        if not written:
            count = max(1, len(shared))
            return {name: 100 // count + (index < 100 % count) for index, name in enumerate(shared)}
        for name in shared:
            if name not in written:
                self._refuse(
                    "missing-key",
                    (*self.where(name, "name"), "weight"),
                    f"the class {name!r} has no weight, and others have",
                    "weights of classes that are not strict sum to 100",
                    key=True,
                )
        total = sum(weight.value for weight in written.values())
        if len(written) == len(shared) and total != 100:
            summands = " + ".join(f"{weight.value} ({name})" for name, weight in written.items())
            last = max(written.values(), key=lambda weight: (weight.layer, not weight.preset))
            self._refuse(
                "weights",
                last.path,
                f"the weights of the classes that are not strict are {summands} = {total}, not 100",
                "they are percent of what strict classes leave; the preset's classes weigh what they do until you say",
            )
        return {name: weight.value for name, weight in written.items()}

    def _check_limit(self, name: str, keys: Keys) -> None:
        limit = keys.get("limit")
        if limit is not None and limit.written_over(keys["lossless"]):
            self._refuse(
                "limit-of-lossless",
                limit.path,
                f"{name!r} is lossless, and a limit drops",
                "pfc: {xoff: ...} says when its senders are paused",
                key=True,
            )

    def _check_curve(self, name: str, keys: Keys, rules: dict[str, Any]) -> None:
        """Refuse what is no curve, and complete `rules` with the place where its marker marks."""
        kmin, kmax = rules.get("kmin"), rules.get("kmax")
        if kmin is None or kmax is None:
            absent = "kmin" if kmin is None else "kmax"
            self._refuse(
                "missing-key",
                (*keys["ecn"].path, absent),
                f"the ECN curve of {name!r} has no {absent}",
                "write both, such as ecn: {kmin: 0.2bdp, kmax: 0.8bdp}, or ecn: false",
                key=True,
            )
            rules["ecn"] = False
            return
        if kmin.unit == kmax.unit and kmin.value > kmax.value:
            self.refuse_curve(name, f"{kmin}", f"{kmax}")
        marker = MARKERS[rules.get("by", MarkBy.EBPF)]
        mark_at = rules.setdefault("mark_at", marker.places[0])
        if mark_at not in marker.places:
            self._refuse(
                "contradiction",
                _last(keys["by"], keys["mark_at"]).path,
                f"{marker.noun} marks {name!r} by the queue that a packet {DOES_TO_QUEUE[marker.places[0]]}, never by"
                f" the one it {DOES_TO_QUEUE[MarkAt(mark_at)]}",
                f"write mark_at: {marker.places[0]}, or by: {MarkBy.EBPF}",
            )

    def refuse_curve(self, name: str, kmin: str, kmax: str) -> None:
        """Kmin above Kmax, each in the words of the message."""
        self._refuse(
            "ecn-curve",
            _last(self.classes[name]["kmin"], self.classes[name]["kmax"]).path,
            f"Kmin ({kmin}) of {name!r} is above Kmax ({kmax})",
            "marking begins at kmin and is certain above kmax",
        )

    def _check_lossy(self, name: str, keys: Keys) -> None:
        pfc = keys.get("pfc")
        if pfc is not None and pfc.written_over(keys.get("lossless")):
            self._refuse(
                "pfc-of-lossy",
                pfc.path,
                f"{name!r} is not lossless, so nothing is ever paused for it",
                "write lossless: true, or remove pfc",
                key=True,
            )

    def _check_pauses(self, name: str, rules: Mapping[str, Any]) -> None:
        xoff, xon = rules.get("xoff"), rules.get("xon")
        if xoff is not None and not xoff.value:
            where = self.classes[name]["xoff"].path
            self._refuse("pfc-thresholds", where, "an XOFF of 0 would pause for ever", "write auto")
        elif xoff is not None and xon is not None and xoff.unit == xon.unit and xon.value > xoff.value:
            self.refuse_pause(name, f"{xon}", f"{xoff}")

    def check_depth(self, name: str, limit_bytes: int, shared_bytes: int) -> None:
        """Refuse a limit of the file's that is more than the buffer of the switch."""
        limit = self.classes[name]["limit"]
        if limit.preset or limit_bytes <= shared_bytes:
            return
        shared = self.values.get("shared")
        size = ByteCount(limit_bytes)
        said = f"{limit.value}" if f"{limit.value}" == f"{size}" else f"{limit.value}, {size}"
        self._refuse(
            "limit-above-buffer",
            (limit if shared is None else _last(limit, shared)).path,
            f"the limit ({said}) of {name!r} is above the {ByteCount(shared_bytes)} that all queues of a switch have",
            "a queue holds no more than buffer.shared: enlarge that, or write a lower limit, or none",
        )

    def refuse_pause(self, name: str, xon: str, xoff: str) -> None:
        """XON above XOFF, each in the words of the message."""
        self._refuse(
            "pfc-thresholds",
            _last(self.classes[name]["xon"], self.classes[name]["xoff"]).path,
            f"XON ({xon}) of {name!r} is above XOFF ({xoff})",
            "senders are paused above xoff and go on below xon; auto chooses either",
        )

    def _classes_path(self) -> Path:
        """The section `classes` that was written last, or what stands for it."""
        last = _last(*(keys["name"] for keys in self.classes.values()))
        return last.path if last.preset else last.path[:-1]

    def _refuse(self, code: str, path: Path, message: str, hint: str, *, key: bool = False) -> None:
        self.problems.append(self.document.problem(code, path, message, hint=hint, key=key))


def _of(keys: Mapping[str, Value], key: str, default: Any) -> Any:
    value = keys.get(key)
    return default if value is None else value.value


def _is_written(keys: Mapping[str, Value], key: str) -> bool:
    """Sorts what presets say before what files say, so that problems are found at the latter."""
    value = keys.get(key)
    return value is not None and not value.preset


def _last(*values: Value) -> Value:
    """Return the first of those that were written last."""
    return max(values, key=lambda value: (not value.preset, value.layer))


def _plain(keys: Keys) -> dict[str, Any]:
    return {key: value.value for key, value in keys.items()}


def _take_keys(keys: Keys, layer: int, path: Path, kind: type, model: SpecModel) -> None:
    """Take the keys written in `model` that a data class declares; a section among them is itself true."""
    types = types_of(kind)
    for name, item in keys_of(kind).items():
        if item.name not in model.model_fields_set:
            continue
        value, at = getattr(model, item.name), (*path, item.name)
        if isinstance(value, SpecModel):
            _take_keys(keys, layer, at, types[name], value)
            value = True
        elif value == "auto":
            for threshold in keys_of(types[name]).values():
                keys.pop(threshold.name, None)
        keys[item.name] = Value(value, layer, at)
