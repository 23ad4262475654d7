"""The features that the core asks are those that there are."""

from pathlib import Path

import testbed.lab.features
from testbed.lab.core.feature import features, filters
from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement
from testbed.lab.core.plan.operations import GuardSwitch
from testbed.lab.core.plan.overlay_operations import SetBorder, SetPolicy


def test_every_feature_is_registered_once() -> None:
    (folder,) = testbed.lab.features.__path__
    written = {f"testbed.lab.features.{path.parent.name}.feature" for path in Path(folder).glob("*/feature.py")}
    assert sorted(type(feature).__module__ for feature in features()) == sorted(written)


def test_every_transaction_of_nftables_has_a_feature_that_makes_it() -> None:
    assert set(filters()) == {GuardSwitch, SetPolicy, SetBorder, GuardManagement, FormCommunity}
