"""Price lists: what they say, and how they are refused, with file, line and column."""

from pathlib import Path

import pytest

from testbed.base.errors import SpecError
from testbed.base.units import Rate
from testbed.base.yaml.reader import load_document
from testbed.lab.core.fabric.figures.cables import Cable
from testbed.lab.core.fabric.figures.prices import EnergyPrice, PartPrice, PriceList
from testbed.lab.core.schema.prices import load_prices, resolve_prices

WHOLE = """\
currency: EUR
switches:
  sn5600: {ports: 64, rate: 800G, split: 2, price: 40k, watts: 900}
  QM9700: {ports: 64, rate: 400G, price: 30000}
optics:
  400G: {price: 700, watts: 9}
cables:
  dac: {400G: {price: 150}}
  aoc: {400G: {price: 900, watts: 12}}
  fibre: {price: 40}
power: {price_per_kwh: 0.12, pue: 1.3, years: 4}
"""
G400 = Rate.parse("400G")


def read(text: str) -> PriceList:
    return resolve_prices(load_document(text, "prices.yml"))


def test_a_whole_list() -> None:
    prices = read(WHOLE)
    assert [(one.name, one.ports, str(one.rate), one.split, one.part.price) for one in prices.switches] == [
        ("sn5600", 64, "800 Gbit/s", 2, 40_000),
        ("QM9700", 64, "400 Gbit/s", 1, 30_000),
    ]
    assert prices.optics == {G400: PartPrice(price=700, watts=9)}
    assert prices.cables == {
        (Cable.DAC, G400): PartPrice(price=150, watts=0),
        (Cable.AOC, G400): PartPrice(price=900, watts=12),
    }
    assert prices.fibre == PartPrice(price=40, watts=0)
    assert prices.energy == EnergyPrice(per_kwh=0.12, pue=1.3, years=4)
    assert (prices.currency, prices.source) == ("EUR", "prices.yml")


def test_a_list_may_lack_all_of_it() -> None:
    prices = read("currency: USD\n")
    assert (prices.switches, prices.optics, prices.cables, prices.fibre, prices.energy) == ((), {}, {}, None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "switchs: {}\n",
            "prices.yml:1:1: unknown-key: switchs: unknown key 'switchs'\n    hint: did you mean 'switches'?",
        ),
        ("switches:\n  a: {ports: 64, rate: 800G}\n", "prices.yml:2:3: missing-key: switches.a.price"),
        ("switches:\n  a: {ports: 64, rate: 800, price: 1}\n", "prices.yml:2:24: no-unit: switches.a.rate"),
        ("switches:\n  a: {ports: 0, rate: 800G, price: 1}\n", "prices.yml:2:14: out-of-range: switches.a.ports"),
        ("switches:\n  (a): {ports: 1, rate: 1G, price: 1}\n", "prices.yml:2:3: bad-name"),
        ("optics:\n  400G: {price: -1}\n", "prices.yml:2:17: out-of-range: optics.400G.price"),
        ("optics:\n  400G: {price: .inf}\n", "prices.yml:2:17: "),
        ("optics:\n  fast: {price: 1}\n", "prices.yml:2:3: bad-quantity: optics"),
        ("optics: {400G: {price: 1}, 0.4T: {price: 2}}\n", "prices.yml:1:28: contradiction: optics"),
        ("cables:\n  dca: {}\n", "prices.yml:2:3: unknown-key: cables.dca"),
        ("power: {price_per_kwh: 0.1}\n", "prices.yml:1:1: missing-key: power.years"),
        ("power: {price_per_kwh: 0.1, pue: 0.9, years: 1}\n", "prices.yml:1:34: out-of-range: power.pue"),
        ("- 1\n", "prices.yml:1:1: not-a-mapping"),
        ("currency: 'US Dollars'\n", "prices.yml:1:11: bad-name: currency: "),
        ('currency: "\\e[31mUSD"\n', "prices.yml:1:11: control-character: currency: "),
        ("currency: USD\ncurrency: EUR\n", "prices.yml:2:1: duplicate-key"),
    ],
)
def test_mistakes_have_a_place(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(text)
    assert said in str(caught.value)


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        read("optics:\n  400G: {prize: 1}\npower: {years: 4}\n")
    assert {problem.code for problem in caught.value.problems} == {"unknown-key", "missing-key"}
    assert len(caught.value.problems) == 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="unreadable"):
        load_prices(tmp_path / "none.yml")
