"""Two leaves that are one LACP partner, with the peer link and the fabric between them in a test's hands."""

from testbed.protocols.lacp.pair import ANSWER_HOLDS_S, SILENCE_S, Pair

SECRET = b"of both"


class Leaves:
    """Two leaves; `link` and `fabric` say whether messages pass there, and `alive` whether a leaf does anything."""

    def __init__(self) -> None:
        self.now = 10.0
        self.first, self.second = (_leaf("leaf1", "leaf2", primary=True), _leaf("leaf2", "leaf1", primary=False))
        self.fabric = True
        self.alive = {self.first, self.second}
        self.set_link(True)
        for leaf in (self.first, self.second):
            leaf.fabric(True, self.now)
            leaf.in_sync(["h1", "h2"], self.now)
        self.exchange()

    def set_link(self, up: bool) -> None:
        self.link = up
        for leaf in (self.first, self.second):
            leaf.peer_link(up, self.now)

    def exchange(self) -> None:
        """Carry messages until nobody has one."""
        while True:
            carried = False
            for sender, receiver in ((self.first, self.second), (self.second, self.first)):
                if sender not in self.alive:
                    continue
                over_link, over_fabric = sender.messages(self.now)
                carried |= bool(over_link or over_fabric)
                for data in over_link if self.link and receiver in self.alive else ():
                    receiver.received(data, self.now)
                for data in over_fabric if self.fabric and receiver in self.alive else ():
                    receiver.received(data, self.now, over_fabric=True)
            if not carried:
                return

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, max(self.now + 0.001, min(self.first.next_due(), self.second.next_due())))
            for leaf in (self.first, self.second):
                leaf.time_out(self.now)
            self.exchange()


def _leaf(name: str, peer: str, *, primary: bool) -> Pair:
    return Pair(name=name, peer=peer, primary=primary, groups=["h1", "h2"], secret=SECRET)


def test_what_the_peer_has_delivered_is_kept_from_the_same_host() -> None:
    leaves = Leaves()
    assert leaves.first.blocked(leaves.now) == leaves.second.blocked(leaves.now) == {"h1", "h2"}
    assert not leaves.first.detoured(leaves.now)
    leaves.second.in_sync(["h2"], leaves.now)
    leaves.exchange()
    assert leaves.first.blocked(leaves.now) == {"h2"}
    assert leaves.second.detoured(leaves.now) == {"h1"}


def test_both_leaves_know_what_one_has_heard() -> None:
    leaves = Leaves()
    macs = {f"02:00:00:00:00:{number:02x}": ("h1", "h2")[number % 2] for number in range(50)}
    for mac, group in macs.items():
        leaves.first.heard_station(mac, group, leaves.now)
    leaves.second.heard_neighbour("192.168.1.2", "02:00:00:00:00:00", leaves.now)
    leaves.exchange()
    assert leaves.second.stations() == macs
    assert leaves.first.neighbours() == {"192.168.1.2": "02:00:00:00:00:00"}
    leaves.first.heard_station("02:00:00:00:00:00", None, leaves.now)
    leaves.exchange()
    assert "02:00:00:00:00:00" not in leaves.second.stations()


def test_a_leaf_that_comes_back_is_told_what_it_had_heard() -> None:
    leaves = Leaves()
    leaves.first.heard_station("02:00:00:00:00:01", "h1", leaves.now)
    leaves.first.heard_neighbour("192.168.1.2", "02:00:00:00:00:01", leaves.now)
    leaves.first.heard_neighbour("192.168.1.3", "02:00:00:00:00:02", leaves.now)
    leaves.exchange()
    leaves.set_link(False)
    leaves.first = _leaf("leaf1", "leaf2", primary=True)
    leaves.alive = {leaves.first, leaves.second}
    leaves.second.heard_neighbour("192.168.1.3", "02:00:00:00:00:03", leaves.now)  # another MAC meanwhile
    leaves.set_link(True)
    leaves.exchange()
    assert leaves.first.stations() == {"02:00:00:00:00:01": "h1"}
    assert leaves.first.neighbours() == {"192.168.1.2": "02:00:00:00:00:01", "192.168.1.3": "02:00:00:00:00:03"}


def test_what_is_lost_on_the_way_is_told_again() -> None:
    leaves = Leaves()
    leaves.link = False  # without a sign of it: carrier stays
    leaves.first.heard_station("02:00:00:00:00:01", "h1", leaves.now)
    leaves.exchange()
    assert not leaves.second.stations()
    leaves.link = True
    leaves.wait(1.1)
    assert leaves.second.stations() == {"02:00:00:00:00:01": "h1"}


def test_a_leaf_without_fabric_leaves_its_groups_to_the_peer() -> None:
    leaves = Leaves()
    for leaf, other in ((leaves.first, leaves.second), (leaves.second, leaves.first)):
        leaf.fabric(False, leaves.now)
        leaves.exchange()
        assert leaf.leaving(leaves.now) == "no way to the fabric"
        assert not other.leaving(leaves.now)
        leaf.fabric(True, leaves.now)
        leaves.exchange()
        assert not leaf.leaving(leaves.now)


def test_of_two_leaves_without_fabric_the_primary_stays() -> None:
    leaves = Leaves()
    for leaf in (leaves.first, leaves.second):
        leaf.fabric(False, leaves.now)
    leaves.exchange()
    assert not leaves.first.leaving(leaves.now)
    assert leaves.second.leaving(leaves.now)


def test_when_the_peer_link_is_cut_the_secondary_leaves_at_once_and_comes_back() -> None:
    leaves = Leaves()
    leaves.set_link(False)
    leaves.exchange()
    assert leaves.second.split_brain(leaves.now)
    assert leaves.second.leaving(leaves.now) == "the peer link is dead and the primary lives"
    assert not leaves.first.leaving(leaves.now)
    leaves.wait(10 * SILENCE_S)
    assert leaves.second.split_brain(leaves.now)
    leaves.set_link(True)
    leaves.exchange()
    assert not leaves.second.leaving(leaves.now)
    assert leaves.second.blocked(leaves.now) == {"h1", "h2"}


def test_when_the_primary_dies_the_secondary_stays() -> None:
    leaves = Leaves()
    leaves.alive = {leaves.second}
    leaves.set_link(False)
    leaves.wait(10 * SILENCE_S)
    assert not leaves.second.leaving(leaves.now)
    assert not leaves.second.blocked(leaves.now)


def test_when_the_primary_dies_after_the_peer_link_the_secondary_takes_over() -> None:
    leaves = Leaves()
    leaves.set_link(False)
    leaves.exchange()
    assert leaves.second.split_brain(leaves.now)
    leaves.alive = {leaves.second}
    leaves.wait(ANSWER_HOLDS_S + 0.01)
    assert not leaves.second.leaving(leaves.now)


def test_a_primary_that_has_answered_and_is_gone_from_the_fabric_is_dead() -> None:
    leaves = Leaves()
    leaves.set_link(False)
    leaves.exchange()
    assert leaves.second.split_brain(leaves.now)
    leaves.alive.discard(leaves.first)
    leaves.second.lost_over_fabric()
    assert not leaves.second.split_brain(leaves.now)
    assert not leaves.second.leaving(leaves.now)


def test_a_peer_that_is_silent_on_a_link_with_carrier_is_lost_after_three_seconds() -> None:
    leaves = Leaves()
    leaves.link = False
    leaves.wait(SILENCE_S - 0.2)
    assert leaves.second.peer_alive(leaves.now)
    leaves.wait(0.4)
    assert not leaves.second.peer_alive(leaves.now)
    assert leaves.second.split_brain(leaves.now)


def test_a_message_that_the_peer_has_not_signed_is_not_heard() -> None:
    leaves = Leaves()
    stranger = Pair(name="leaf1", peer="leaf2", primary=True, groups=["h1"], secret=b"another")
    stranger.peer_link(True, leaves.now)
    stranger.heard_station("02:00:00:00:00:66", "h1", leaves.now)
    forged, _ = stranger.messages(leaves.now)
    own, _ = leaves.second.messages(leaves.now + 5)
    for data in (*forged, *own, b"", b"\0" * 60):
        leaves.second.received(data, leaves.now)
    assert forged
    assert own
    assert not leaves.second.stations()


def test_a_group_more_is_served_by_both_with_what_the_peer_had_heard_of_it() -> None:
    """One leaf is told a moment later: what the other has said of the new group meanwhile is said once more."""
    leaves = Leaves()
    leaves.first.serve(["h1", "h2", "h3"], leaves.now)
    leaves.first.in_sync(["h1", "h2", "h3"], leaves.now)
    leaves.first.heard_station("mac3", "h3", leaves.now)
    leaves.exchange()
    assert "mac3" not in leaves.second.stations()
    assert leaves.second.blocked(leaves.now) == {"h1", "h2"}
    leaves.second.serve(["h1", "h2", "h3"], leaves.now)
    leaves.wait(1.5)
    assert leaves.second.stations()["mac3"] == "h3"
    assert leaves.second.blocked(leaves.now) == {"h1", "h2", "h3"}
    assert leaves.second.detoured(leaves.now) == {"h3"}


def test_a_group_that_goes_leaves_nothing() -> None:
    leaves = Leaves()
    leaves.first.heard_station("mac2", "h2", leaves.now)
    leaves.exchange()
    assert leaves.second.stations() == {"mac2": "h2"}
    for leaf in (leaves.first, leaves.second):
        leaf.serve(["h1"], leaves.now)
        leaf.in_sync(["h1"], leaves.now)
    leaves.wait(1.5)
    for leaf in (leaves.first, leaves.second):
        assert leaf.stations() == {}
        assert leaf.blocked(leaves.now) == {"h1"}
        assert not leaf.leaving(leaves.now)
