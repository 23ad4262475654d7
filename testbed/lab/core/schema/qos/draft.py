"""One port's QoS while its layers are joined: every value with the place it was written at.

A draft begins empty or with a preset, takes the keys of one layer after the other, and is built into a `QosProfile`;
what does not fit together is a problem at the key that was written last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.base.datapath.markers import DOES_TO_QUEUE, MARKERS
from testbed.base.errors import Problem
from testbed.base.validation.model import SpecModel
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path
from testbed.lab.core.fabric import QOS_PRESETS
from testbed.lab.core.model import (
    BalancingMode,
    Buffer,
    Depth,
    EcnCurve,
    HashEngine,
    LoadBalancing,
    MarkAt,
    MarkBy,
    NonEct,
    PfcThresholds,
    QosProfile,
    TrafficClass,
    Watchdog,
)
from testbed.lab.core.model.qos import CLASSES
from testbed.lab.core.schema.qos.spec import PfcSpec, QosSettings

CUSTOM = "custom"
"""The preset of a file that names none."""
BEST_EFFORT = "best-effort"
_SECTIONS = ("buffer", "load_balancing")
_PLAIN = ("trimming", "marks_account", "watchdog", "base_rtt")


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
            self._take_keys(keys, layer, at, item, nested=("ecn", "pfc"))
        for section in _SECTIONS:
            self._take_keys(self.values, layer, (*path, section), getattr(settings, section))
        self._take_keys(self.values, layer, path, settings, nested=("watchdog",), only=_PLAIN)

    def _take_keys(
        self,
        keys: Keys,
        layer: int,
        path: Path,
        model: SpecModel,
        *,
        nested: tuple[str, ...] = (),
        only: tuple[str, ...] | None = None,
    ) -> None:
        """The keys written in `model`; a mapping below one of `nested` has its keys taken, and is itself true."""
        for key in sorted(model.model_fields_set):
            if only is not None and key not in only:
                continue
            value, at = getattr(model, key), (*path, key)
            if key in nested and isinstance(value, SpecModel):
                self._take_keys(keys, layer, at, value)
                value = True
            elif value == "auto":
                for threshold in PfcSpec.model_fields:
                    keys.pop(threshold, None)
            keys[key] = Value(value, layer, at)

    def _take_preset(self, layer: int, path: Path, name: str) -> None:
        """Begin anew with a preset: whatever outer layers said is gone."""
        profile = QOS_PRESETS[name].profile
        self.preset, self.origin = name, path
        self.classes = {
            item.name: {key: Value(value, layer, path, preset=True) for key, value in _class_keys(item)}
            for item in profile.classes
        }
        self.values = {key: Value(value, layer, path, preset=True) for key, value in _profile_keys(profile)}

    # ------------------------------------------------------------------ building

    def build(self) -> QosProfile | None:
        """The profile; None where `problems` has any."""
        before = len(self.problems)
        classes = self._build_classes()
        balancing = self._build_balancing()
        watchdog = self._get("watchdog", False)
        profile = QosProfile(
            preset=self.preset,
            classes=classes,
            buffer=Buffer(
                shared_bytes=self._get("shared", Buffer().shared_bytes), alpha=self._get("alpha", Buffer().alpha)
            ),
            load_balancing=balancing,
            trimming=self._get("trimming", False),
            marks_account=self._get("marks_account", True),
            watchdog=Watchdog(
                detect=self._get("detect", Watchdog().detect), restore=self._get("restore", Watchdog().restore)
            )
            if watchdog
            else None,
            base_rtt=self._get("base_rtt", None),
        )
        return profile if len(self.problems) == before else None

    def where(self, name: str, key: str) -> Path:
        """Return where a key of a class was written; the class itself, or the preset, where it was not."""
        keys = self.classes.get(name, {})
        value = keys.get(key) or keys.get("name")
        return value.path if value is not None else self.origin

    def where_buffer(self) -> Path:
        """Return where the size of the buffer was written."""
        value = self.values.get("shared")
        return value.path if value is not None else self.origin

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        return default if value is None else value.value

    def _build_balancing(self) -> LoadBalancing:
        default = LoadBalancing()
        mode = BalancingMode(self._get("mode", default.mode))
        engine = HashEngine(self._get("hash", default.hash))
        written_mode, gap, hashed = self.values.get("mode"), self.values.get("gap"), self.values.get("hash")
        if gap is not None and mode is not BalancingMode.FLOWLET and gap.written_over(written_mode):
            self._refuse(
                "gap-without-flowlet",
                gap.path,
                f"a gap means something with mode: flowlet alone, and the mode is {mode}",
                "write mode: flowlet, or remove the gap",
                key=True,
            )
        if engine is HashEngine.KERNEL and mode is not BalancingMode.FLOW and hashed is not None:
            at = written_mode if written_mode is not None and written_mode.written_over(hashed) else hashed
            self._refuse(
                "kernel-hash",
                at.path,
                f"the kernel's hash knows flows alone; mode {mode} needs hash: ebpf",
                "remove hash: kernel, or write mode: flow",
            )
        return LoadBalancing(
            mode=mode,
            gap=self._get("gap", default.gap),
            hash=engine,
            polarised=self._get("polarised", default.polarised),
            seed=self._get("seed", default.seed),
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
            TrafficClass(
                name=name,
                priority=priorities.get(name, 0),
                dscp=tuple(_of(keys, "dscp", ())),
                default=_of(keys, "default", False),
                strict=_of(keys, "strict", False),
                weight=weights.get(name, 0),
                lossless=_of(keys, "lossless", False),
                limit=self._limit(name, keys),
                ecn=self._ecn(name, keys),
                pfc=self._pfc(name, keys),
            )
            for name, keys in self.classes.items()
        ]
        return tuple(sorted(built, key=lambda item: item.priority))

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
            last = max(defaults, key=lambda value: (not value.preset, value.layer))
            names = [name for name, keys in self.classes.items() if _of(keys, "default", False)]
            self._refuse(
                "two-defaults",
                last.path,
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

    def _limit(self, name: str, keys: Keys) -> Depth | None:
        limit: Value | None = keys.get("limit")
        if limit is None or not _of(keys, "lossless", False):
            return None if limit is None else limit.value
        if limit.written_over(keys["lossless"]):
            self._refuse(
                "limit-of-lossless",
                limit.path,
                f"{name!r} is lossless, and a limit drops",
                "pfc: {xoff: ...} says when its senders are paused",
                key=True,
            )
        return None

    def _ecn(self, name: str, keys: Keys) -> EcnCurve | None:
        if not _of(keys, "ecn", False):
            return None
        kmin, kmax = keys.get("kmin"), keys.get("kmax")
        if kmin is None or kmax is None:
            absent = "kmin" if kmin is None else "kmax"
            self._refuse(
                "missing-key",
                (*keys["ecn"].path, absent),
                f"the ECN curve of {name!r} has no {absent}",
                "write both, such as ecn: {kmin: 0.2bdp, kmax: 0.8bdp}, or ecn: false",
                key=True,
            )
            return None
        if kmin.value.unit == kmax.value.unit and kmin.value.value > kmax.value.value:
            self.refuse_curve(name, f"{kmin.value}", f"{kmax.value}")
        by = MarkBy(_of(keys, "by", MarkBy.EBPF))
        marker = MARKERS[by]
        mark_at = MarkAt(_of(keys, "mark_at", marker.places[0]))
        if mark_at not in marker.places:
            last = max((keys["by"], keys["mark_at"]), key=lambda value: (not value.preset, value.layer))
            self._refuse(
                "contradiction",
                last.path,
                f"{marker.noun} marks {name!r} by the queue that a packet {DOES_TO_QUEUE[marker.places[0]]}, never by"
                f" the one it {DOES_TO_QUEUE[mark_at]}",
                f"write mark_at: {marker.places[0]}, or by: {MarkBy.EBPF}",
            )
        return EcnCurve(
            kmin=kmin.value,
            kmax=kmax.value,
            pmax=_of(keys, "pmax", 1.0),
            non_ect=NonEct(_of(keys, "non_ect", NonEct.KEEP)),
            mark_at=mark_at,
            by=by,
        )

    def refuse_curve(self, name: str, kmin: str, kmax: str) -> None:
        """Kmin above Kmax, each in the words of the message."""
        keys = self.classes[name]
        last = max(keys["kmin"], keys["kmax"], key=lambda value: (not value.preset, value.layer))
        self._refuse(
            "ecn-curve",
            last.path,
            f"Kmin ({kmin}) of {name!r} is above Kmax ({kmax})",
            "marking begins at kmin and is certain above kmax",
        )

    def _pfc(self, name: str, keys: Keys) -> PfcThresholds | None:
        pfc = keys.get("pfc")
        if not _of(keys, "lossless", False):
            if pfc is not None and pfc.written_over(keys.get("lossless")):
                self._refuse(
                    "pfc-of-lossy",
                    pfc.path,
                    f"{name!r} is not lossless, so nothing is ever paused for it",
                    "write lossless: true, or remove pfc",
                    key=True,
                )
            return None
        if pfc is None or pfc.value == "auto":
            return PfcThresholds()
        xoff, xon = _of(keys, "xoff", None), _of(keys, "xon", None)
        if xoff is not None and not xoff.value:
            self._refuse("pfc-thresholds", keys["xoff"].path, "an XOFF of 0 would pause for ever", "write auto")
        elif xoff is not None and xon is not None and xoff.unit == xon.unit and xon.value > xoff.value:
            self.refuse_pause(name, f"{xon}", f"{xoff}")
        return PfcThresholds(xoff=xoff, xon=xon, headroom=_of(keys, "headroom", None))

    def refuse_pause(self, name: str, xon: str, xoff: str) -> None:
        """XON above XOFF, each in the words of the message."""
        keys = self.classes[name]
        last = max(keys["xon"], keys["xoff"], key=lambda value: (not value.preset, value.layer))
        self._refuse(
            "pfc-thresholds",
            last.path,
            f"XON ({xon}) of {name!r} is above XOFF ({xoff})",
            "senders are paused above xoff and go on below xon; auto chooses either",
        )

    def _classes_path(self) -> Path:
        """The section `classes` that was written last, or what stands for it."""
        last = max((keys["name"] for keys in self.classes.values()), key=lambda value: (not value.preset, value.layer))
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


def _class_keys(item: TrafficClass) -> Iterator[tuple[str, Any]]:
    """A class as the flat keys of a draft."""
    yield from (("name", item.name), ("dscp", item.dscp), ("pcp", item.priority), ("default", item.default))
    yield from (("strict", item.strict), ("lossless", item.lossless), ("ecn", item.ecn is not None))
    if item.weight:
        yield "weight", item.weight
    if item.limit is not None:
        yield "limit", item.limit
    if item.ecn is not None:
        ecn = item.ecn
        yield from (("kmin", ecn.kmin), ("kmax", ecn.kmax), ("pmax", ecn.pmax), ("non_ect", ecn.non_ect))
        yield from (("mark_at", ecn.mark_at), ("by", ecn.by))
    if item.pfc is not None:
        yield from (("pfc", True), ("xoff", item.pfc.xoff), ("xon", item.pfc.xon), ("headroom", item.pfc.headroom))


def _profile_keys(profile: QosProfile) -> Iterator[tuple[str, Any]]:
    balancing, watchdog = profile.load_balancing, profile.watchdog
    yield from (("shared", profile.buffer.shared_bytes), ("alpha", profile.buffer.alpha))
    yield from (("mode", balancing.mode), ("gap", balancing.gap), ("hash", balancing.hash))
    yield from (("polarised", balancing.polarised), ("seed", balancing.seed))
    yield from (("trimming", profile.trimming), ("base_rtt", profile.base_rtt))
    yield from (("marks_account", profile.marks_account), ("watchdog", watchdog is not None))
    if watchdog is not None:
        yield from (("detect", watchdog.detect), ("restore", watchdog.restore))
