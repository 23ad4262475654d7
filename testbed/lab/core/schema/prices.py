"""Reading price lists: what switches, optics, cables and energy cost (`testbed.lab.core.fabric.figures.prices`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Annotated

from pydantic import Field

from testbed.base.errors import Problem, SpecError
from testbed.base.units import QuantityError, Rate
from testbed.base.validation.engine import ready_to_show, validate_model
from testbed.base.validation.fields import Name, Number, RateField, Section, Whole, Written
from testbed.base.validation.model import SpecModel
from testbed.base.yaml.document import Document
from testbed.base.yaml.paths import Path, quote
from testbed.base.yaml.reader import read_document
from testbed.lab.core.fabric.figures.cables import Cable
from testbed.lab.core.fabric.figures.prices import EnergyPrice, PartPrice, PriceList, SwitchModel

_MODEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9 _./+-]{0,61}[A-Za-z0-9+])?")


_CURRENCY = re.compile(r"[A-Za-z$€£¥]{1,8}")


def _check_currency(name: str) -> None:
    if not _CURRENCY.fullmatch(name):
        raise ValueError(f"{quote(name)} is no currency such as USD or €")


def _check_model_name(name: str) -> None:
    if not _MODEL_NAME.fullmatch(name):
        raise ValueError(f"{quote(name)} cannot name a model: letters, digits, spaces and _./+-, at most 63")


Currency = Annotated[str, Name(_check_currency, f"^{_CURRENCY.pattern}$", renamed=False)]
ModelName = Annotated[str, Name(_check_model_name, f"^{_MODEL_NAME.pattern}$")]
Amount = Annotated[float, Number(0, 1e9)]
Watts = Annotated[float, Number(0, 1e6)]


class PartPriceSpec(SpecModel):
    """A part: what one costs, and the power that it takes."""

    price: Amount = Field(description="Gives the price of one, in the currency of the file.")
    watts: Watts = Field(default=0, description="Gives the power that one takes, in watts.")

    def part(self) -> PartPrice:
        return PartPrice(price=self.price, watts=self.watts)


class SwitchModelSpec(PartPriceSpec):
    """A model of switches, with the power that it takes without transceivers."""

    ports: Annotated[int, Whole(1, 4096)] = Field(description="Says how many ports it has.")
    rate: RateField = Field(description="Gives the rate of a port, such as 800G.")
    split: Annotated[int, Whole(1, 16)] = Field(
        default=1, description="Says how many links of less a port may be split into."
    )


class CablePricesSpec(SpecModel):
    """Cables by kind: copper and active optical ones by their rate."""

    dac: Section[dict[RateField, PartPriceSpec]] = Field(
        default={}, description="Gives the price of passive copper cables by rate."
    )
    aoc: Section[dict[RateField, PartPriceSpec]] = Field(
        default={}, description="Gives the price of active optical cables by rate, with the power of both ends."
    )
    fibre: Written[PartPriceSpec] = Field(
        default=None, description="Gives the price of the fibre between two transceivers."
    )


class EnergySpec(SpecModel):
    """The price of energy, and for how long it is paid."""

    price_per_kwh: Annotated[float, Number(0, 1000)] = Field(description="Gives the price of a kilowatt-hour.")
    pue: Annotated[float, Number(1, 10)] = Field(
        default=1, description="Gives the power usage effectiveness: all power over that of the parts."
    )
    years: Annotated[float, Number(0, 50)] = Field(description="Says for how many years energy is paid.")


class PricesSpec(SpecModel):
    """A price list. What it has no price for is told where a design needs it."""

    currency: Currency = Field(default="USD", description="Names the currency of all prices.")
    switches: Section[dict[ModelName, SwitchModelSpec]] = Field(
        default={}, description="Describes models of switches by name; a switch is the cheapest one that has room."
    )
    optics: Section[dict[RateField, PartPriceSpec]] = Field(
        default={}, description="Gives the price of transceivers by rate; an optical link has two."
    )
    cables: Section[CablePricesSpec] = Field(
        default=CablePricesSpec.model_construct(), description="Gives the prices of cables."
    )
    power: Written[EnergySpec] = Field(default=None, description="Gives the price of energy.")


def load_prices(path: FilePath) -> PriceList:
    """Read a price list. Raises `SpecError` with every problem, each at its line and column."""
    return resolve_prices(read_document(path, begin="begin with 'currency: ' and its name"))


def resolve_prices(document: Document) -> PriceList:
    """Return the prices of a document. Raises `SpecError`."""
    spec = validate_model(PricesSpec, document)
    twice = list(_rates_twice(document))
    if twice:
        raise SpecError(ready_to_show(twice))
    cables = spec.cables
    return PriceList(
        source=document.file,
        currency=spec.currency,
        switches=tuple(
            SwitchModel(name=name, ports=one.ports, rate=one.rate, split=one.split, part=one.part())
            for name, one in spec.switches.items()
        ),
        optics={rate: one.part() for rate, one in spec.optics.items()},
        cables={
            (cable, rate): one.part()
            for cable, rates in ((Cable.DAC, cables.dac), (Cable.AOC, cables.aoc))
            for rate, one in rates.items()
        },
        fibre=None if cables.fibre is None else cables.fibre.part(),
        energy=None
        if spec.power is None
        else EnergyPrice(per_kwh=spec.power.price_per_kwh, pue=spec.power.pue, years=spec.power.years),
    )


def _rates_twice(document: Document) -> Iterator[Problem]:
    """Yield a problem for each rate that stands twice in a section, written in two ways such as 400G and 0.4T."""
    sections: tuple[Path, ...] = (("optics",), ("cables", Cable.DAC.value), ("cables", Cable.AOC.value))
    for section in sections:
        entries = document.get(section)
        seen: dict[Rate, str] = {}
        for written in entries if isinstance(entries, Mapping) else ():
            try:
                rate = Rate.parse(str(written))
            except QuantityError:
                continue
            if rate in seen:
                message = f"{written} is the same rate as {seen[rate]}"
                yield document.problem("contradiction", (*section, written), message, hint="keep one", key=True)
            seen.setdefault(rate, str(written))
