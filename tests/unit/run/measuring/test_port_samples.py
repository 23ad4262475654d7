"""What is sampled of the data path becomes what each port did at each moment, in the units of the console's columns."""

from dataclasses import replace

import numpy as np
import pytest

from testbed.base.datapath.abi import CLASSES
from testbed.lab.core.fabric import QOS_PRESETS, generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.model import QosPolicy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.observe.port_table import PortTable, tabulate_ports
from testbed.lab.observe.sampler import Samples
from testbed.record.port_samples import METRICS
from testbed.run.measuring.port_samples import COLUMNS, MOST_TIMES, port_samples

BEGIN_NS = 5_000_000_000
STEP_NS = 100_000_000


@pytest.fixture(scope="module")
def table() -> PortTable:
    params = FabricParams(design="rail-optimized", segments=1, hosts=2, gpus=2, spines=2)
    lab = replace(generate_fabric(params, name="x"), qos=QosPolicy(profiles=(QOS_PRESETS["dcqcn"].profile,)))
    return tabulate_ports(plan_lab(lab, k=1000))


def sampled(table: PortTable, times: int, **columns: dict[tuple[int, int], list[int]]) -> Samples:
    """Samples of all queues of a lab; what is not given of a column is 0."""
    queues = tuple(divmod(int(place), CLASSES) for place in np.flatnonzero(table.present.ravel()))
    values = {name: np.zeros((times, len(queues)), np.uint64) for name in COLUMNS}
    for name, of_queues in columns.items():
        column = next(one for one in COLUMNS if one.endswith(f".{name}"))
        for queue, series in of_queues.items():
            values[column][:, queues.index(queue)] = series
    stamps = BEGIN_NS + STEP_NS * np.arange(times)
    return Samples(times_ns=stamps, columns=values, queues=queues, complete=True)


def of(table: PortTable, place: str) -> int:
    return next(port for port in range(1, table.count + 1) if table.place(port) == place)


def queues_of(table: PortTable, port: int) -> list[tuple[int, int]]:
    return [(port, int(priority)) for priority in np.flatnonzero(table.present[port])]


def test_each_column_is_of_what_the_port_sends(table: PortTable) -> None:
    port, peer = of(table, "p1-s1-h1:rail1"), of(table, "p1-s1-rail1:down1")
    assert int(table.peer[port]) == peer
    first, *others = queues_of(table, port)
    half = int(table.rate_bps[port]) // 8 // 20  # half of what it sends in a tenth of a second
    samples = sampled(
        table,
        3,
        out_bytes={first: [0, half, half], others[0]: [0, half // 2, half // 2]},
        bytes={first: [0, 3000, 10], others[0]: [0, 500, 0]},
        out_packets={first: [0, 100, 100]},
        ce_packets={first: [0, 25, 25]},
        tail_packets={first: [0, 0, 2]},
        lost_packets={queues_of(table, peer)[0]: [0, 0, 1]},
        paused_ns={first: [0, 0, 0]},
        paused_since={first: [0, BEGIN_NS + STEP_NS // 2, BEGIN_NS + STEP_NS // 2]},
    )
    found = port_samples(samples, table, BEGIN_NS)
    assert found is not None and set(found.columns) == set(METRICS)
    assert found.at_s.tolist() == [0.1, 0.2]
    at = found.ports.index("p1-s1-h1:rail1")
    columns = {name: found.columns[name][:, at].tolist() for name in METRICS}
    assert columns["use"] == [750, 0]
    assert columns["queue"] == [0, 3500], "the most that waited since the moment before, and not what is left of it"
    assert columns["marks"] == [250, 0]
    assert columns["losses"] == [0, 30], "two at its queue and one on its wire, of a tenth of a second"
    assert columns["pauses"] == [500, 1000], "a pause that lasts counts as long as it has lasted"
    other = found.ports.index("p1-s1-h2:rail1")
    assert all(not found.columns[name][:, other].any() for name in METRICS)


def test_a_long_run_is_thinned_and_no_peak_is_lost(table: PortTable) -> None:
    port = of(table, "p1-s1-h1:rail1")
    queue = queues_of(table, port)[0]
    times = 5 * MOST_TIMES
    depths = [0] * times
    depths[1234] = 77_000
    found = port_samples(sampled(table, times, bytes={queue: depths}), table, BEGIN_NS)
    assert found is not None and len(found.at_s) <= MOST_TIMES
    assert int(found.columns["queue"][:, found.ports.index("p1-s1-h1:rail1")].max()) == 77_000


@pytest.mark.parametrize("times", [0, 1])
def test_too_few_samples_are_none(times: int, table: PortTable) -> None:
    assert port_samples(sampled(table, times), table, BEGIN_NS) is None


def test_a_lab_that_is_too_large_for_all_columns_has_none(table: PortTable) -> None:
    samples = sampled(table, 3)
    sent = {name: values for name, values in samples.columns.items() if name.endswith("out_bytes")}
    assert port_samples(replace(samples, columns=sent), table, BEGIN_NS) is None
