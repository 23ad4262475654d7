"""The end of a change: features end their parts, and routing that has not converged once more ends none of it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from testbed.base.errors import ConvergenceError
from testbed.lab.core.deploy.changing.carrying.carrying_out import ChangeExecution
from testbed.lab.core.feature import Changing, FeatureChange


class Ending(FeatureChange):
    """It notes that it ended; `error` is what routing had to say then."""

    def __init__(self, error: ConvergenceError | None) -> None:
        super().__init__(())
        self.error, self.has_ended = error, False

    def removed(self, changing: Changing) -> None:
        self.has_ended = True
        if self.error is not None:
            raise self.error


def test_routing_that_does_not_converge_once_more_leaves_no_change_half_ended() -> None:
    """Raised at once it would leave the lab in the middle of the change, with a record of what it was before."""
    slow = ConvergenceError("no routes", missing=())
    features = [Ending(None), Ending(slow), Ending(None)]
    assert ended(features) is slow
    assert all(each.has_ended for each in features)
    assert ended([Ending(None)]) is None


def ended(features: Sequence[Ending]) -> ConvergenceError | None:
    """What comes back of a change that has come to its end with these features."""
    execution = object.__new__(ChangeExecution)
    vars(execution)["changes"] = SimpleNamespace(features=features)
    return execution._end_features(cast(Changing, None))
