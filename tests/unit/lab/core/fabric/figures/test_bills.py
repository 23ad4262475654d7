"""What a design costs, and the power that it takes, against an example that was worked out by hand."""

from dataclasses import replace

import pytest

from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.fabric.figures.cables import Cable, count_cables
from testbed.lab.core.fabric.figures.design import figure_rows, measure_design
from testbed.lab.core.fabric.figures.prices import (
    Bill,
    EnergyPrice,
    PartKind,
    PartPrice,
    PriceList,
    SwitchModel,
    make_bill,
)
from testbed.lab.core.model import BACKEND, Lab, Role

G400, G800 = Rate.parse("400G"), Rate.parse("800G")
SMALL = SwitchModel(name="small", ports=4, rate=G400, split=1, part=PartPrice(price=5000, watts=300))
LARGE = SwitchModel(name="large", ports=64, rate=G800, split=2, part=PartPrice(price=40_000, watts=900))
PRICES = PriceList(
    source="prices.yml",
    currency="USD",
    switches=(LARGE, SMALL),
    optics={G400: PartPrice(price=700, watts=9)},
    cables={(Cable.AOC, G400): PartPrice(price=900, watts=12)},
    fibre=PartPrice(price=40, watts=0),
    energy=EnergyPrice(per_kwh=0.1, pue=1.5, years=4),
)


def lab(**written: object) -> Lab:
    """Four leaves with two NICs and two uplinks each, two spines: 8 GPUs, 8 links to hosts and 8 between switches."""
    shape: dict[str, object] = {"segments": 2, "hosts": 2, "gpus": 2, "spines": 2, **written}
    return generate_fabric(FabricParams(design="rail-optimized", **shape), name="lab")  # type: ignore[arg-type]


def bill(model: Lab, prices: PriceList = PRICES) -> Bill:
    return make_bill(model, count_cables(model), prices)


def test_a_bill_by_hand() -> None:
    """6 switches of 5,000 USD and 300 W; of 8 optical links 16 transceivers of 700 USD and 9 W, and 8 fibres of 40 USD;
    8 active cables of 900 USD and 12 W. In all 30,000 + 11,200 + 7,520 = 48,720 USD and 1,800 + 144 + 96 = 2,040 W.

    Energy: 2.04 kW x 1.5 x 4 x 8,766 h x 0.1 USD = 10,729.58 USD.
    """
    found = bill(lab())
    assert {(item.part, item.number, item.price, item.watts) for item in found.items} == {
        ("small", 6, 30_000, 1800),
        ("AOC of 400 Gbit/s", 8, 7200, 96),
        ("transceiver of 400 Gbit/s", 16, 11_200, 144),
        ("fibre", 8, 320, 0),
    }
    assert [found.price_of(kind) for kind in PartKind] == [30_000, 11_200, 7520]
    assert [found.watts_of(kind) for kind in PartKind] == [1800, 144, 96]
    assert (found.price, found.watts, found.missing) == (48_720, 2040, ())
    assert found.energy == pytest.approx(10_729.584)
    assert found.total == pytest.approx(59_449.584)


def test_the_bill_in_rows() -> None:
    rows = {row.what: row.text for row in figure_rows(measure_design(lab(), BACKEND, PRICES))}
    assert rows["price of all parts"] == "48,720 USD"
    assert rows["power of all parts"] == "2.0 kW"
    assert rows["energy of 4 years"] == "10,730 USD"
    assert rows["price with energy"] == "59,450 USD"
    assert rows["price for each GPU"] == "7,431 USD"


def test_without_a_price_of_energy_parts_are_all() -> None:
    found = bill(lab(), replace(PRICES, energy=None))
    assert (found.energy, found.total) == (None, 48_720)


def test_a_switch_is_the_cheapest_that_has_room() -> None:
    """A fifth port does not fit the small one; 64 ports of 800G take 128 links of 400G, and not one of 1.6T."""
    assert {item.part for item in bill(lab(hosts=3)).items if item.kind is PartKind.SWITCHES} == {"small", "large"}
    assert LARGE.has_room({G400: 128}) and not LARGE.has_room({G400: 129})
    assert LARGE.has_room({G800: 63, G400: 2}) and not LARGE.has_room({G800: 63, G400: 3})
    assert not LARGE.has_room({Rate.parse("1.6T"): 1})


def test_a_label_names_the_model() -> None:
    model = lab()
    nodes = tuple(replace(node, labels={"model": "large"}) if node.role is Role.SPINE else node for node in model.nodes)
    chosen = {item.part: item.number for item in bill(replace(model, nodes=nodes)).items}
    assert (chosen["small"], chosen["large"]) == (4, 2)


@pytest.mark.parametrize(
    ("prices", "missing"),
    [
        (replace(PRICES, optics={}), ("16 x transceiver of 400 Gbit/s",)),
        (replace(PRICES, fibre=None), ("8 x fibre",)),
        (replace(PRICES, cables={}), ("8 x AOC of 400 Gbit/s",)),
        (replace(PRICES, switches=()), ("6 x switch with 4 ports of 400 Gbit/s",)),
    ],
)
def test_what_has_no_price_makes_the_cost_unknown(prices: PriceList, missing: tuple[str, ...]) -> None:
    """A sum without a part would be compared with a whole one."""
    found = bill(lab(), prices)
    assert found.missing == missing
    assert (found.price, found.watts, found.energy, found.total) == (None, None, None, None)
    rows = {row.what: row.text for row in figure_rows(measure_design(lab(), BACKEND, prices))}
    assert rows["price of all parts"] == rows["power of all parts"] == "unknown"


def test_a_model_that_is_named_must_be_there_and_have_room() -> None:
    model = lab(hosts=4)

    def named(name: str) -> tuple[str, ...]:
        return bill(replace(model, nodes=tuple(replace(node, labels={"model": name}) for node in model.nodes))).missing

    assert named("sn5600") == ("6 x switch called 'sn5600'",)
    assert named("small") == ("4 x switch called 'small' with 6 ports of 400 Gbit/s",)


def test_a_label_cannot_write_to_the_terminal() -> None:
    model = lab()
    nodes = tuple(replace(node, labels={"model": "\x1b[31mred"}) for node in model.nodes)
    (missing,) = bill(replace(model, nodes=nodes)).missing
    assert missing.isprintable() and "red" in missing
