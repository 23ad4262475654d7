"""A histogram of the pause agent that a test records times into."""

from testbed.daemons.portd.histogram import Histogram


class RecordedTimes(Histogram):
    """A histogram with its input; in the agent the native side records."""

    __slots__ = ()

    def record(self, value_ns: int) -> None:
        """A negative time (clocks that disagree) counts as 0."""
        self._native.histogram_record(self._steps, value_ns)
