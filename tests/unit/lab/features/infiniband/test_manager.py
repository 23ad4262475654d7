"""What OpenSM's log says."""

from testbed.lab.features.infiniband.manager import ManagerLog, engine_sentence, parse_log

HEAD = "Nov 29 12:00:00 123456 [7F12A6C0] "
UP = f"{HEAD}0x02 -> SUBNET UP\n"


def test_a_sweep_has_ended_where_the_subnet_is_up() -> None:
    text = f"{HEAD}0x80 -> Entering MASTER state\n"
    text += f"{HEAD}0x02 -> osm_ucast_mgr_process: ftree tables configured on all switches\n"
    assert parse_log(text) == ManagerLog(sweeps=0, state="master", engine="ftree")
    assert parse_log(text + UP) == ManagerLog(sweeps=1, state="master", engine="ftree")
    assert parse_log(text + UP + UP).sweeps == 2


def test_a_line_that_is_cut_short_is_no_sweep() -> None:
    assert parse_log(f"{HEAD}0x02 -> SUBNE").sweeps == 0
    assert parse_log("").sweeps == 0


def test_the_errors_of_the_last_sweep_are_kept() -> None:
    error = f"{HEAD}0x01 -> rank_leaf_switches: ERR AB0D: CA has no remote port\n"
    tables = f"{HEAD}0x02 -> osm_ucast_mgr_process: minhop tables configured on all switches\n"
    found = parse_log(error + tables + UP)
    assert found.complaints == ("ERR AB0D: CA has no remote port",)
    assert parse_log(error + tables + UP + tables + UP).complaints == (), "the next sweep had none"


def test_a_standby_manager_says_so() -> None:
    assert parse_log(f"{HEAD}0x80 -> Entering STANDBY state\n").state == "standby"


def test_a_manager_that_is_started_again_is_nothing_yet() -> None:
    text = f"{HEAD}0x80 -> Entering MASTER state\n{UP}{HEAD}0x03 -> OpenSM 3.3.23\n"
    assert parse_log(text) == ManagerLog(sweeps=1, state="")


def test_people_are_told_that_ftree_gave_up_and_why() -> None:
    log = ManagerLog(sweeps=2, engine="updn", complaints=("ERR 3A01: other", "ERR AB0B: not a fat tree"))
    sentence = engine_sentence(("ftree", "updn"), log)
    assert sentence.startswith("ftree gave this fabric up, and its tables are updn's")
    assert "one missing uplink" in sentence
    assert "ERR AB0B: not a fat tree" in sentence
    assert engine_sentence(("ftree", "updn"), ManagerLog(engine="ftree")) == ""
    assert engine_sentence(("ftree",), ManagerLog()) == "", "nothing is known yet"
    assert engine_sentence(("updn",), ManagerLog(engine="minhop")) == (
        "updn gave this fabric up, and its tables are minhop's"
    )
