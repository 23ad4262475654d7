"""A target's document: what it says, and the words for each key that does not hold what it may."""

from typing import Any

import pytest

from testbed.base.program_errors import ProgramError
from testbed.endpoints.storage.media import MediaConfig
from testbed.endpoints.storage.target_config import parse_target_config

NQN = "nqn.2026-01.lab:st1"


def document(namespace: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    subsystem = {"nqn": NQN, "namespaces": [{"size": 1 << 20} | (namespace or {})]} | fields
    return {"listen": [{"address": "10.5.0.1"}], "subsystems": [subsystem]}


def test_all_keys() -> None:
    media = {"rate": 50, "latency_us": 100, "depth": 8}
    written = document({"backend": "file", "path": "/x", "block": 512, "media": media, "nguid": "0f" * 16})
    written["subsystems"][0] |= {"allowed_hosts": ["nqn.h1"], "first_cntlid": 7}
    written |= {"controller": {"cpda": 3, "data_digest": False}, "most_connections": 9}
    config = parse_target_config(written)
    (subsystem,) = config.subsystems
    (namespace,) = subsystem.namespaces
    assert [(item.address, item.port) for item in config.listen] == [("10.5.0.1", 4420)]
    assert (config.controller.cpda, config.controller.data_digest, config.most_connections) == (3, False, 9)
    assert (subsystem.allowed_hosts, subsystem.first_cntlid) == (frozenset({"nqn.h1"}), 7)
    assert namespace.media == MediaConfig(**media)
    (described,) = subsystem.describe()
    assert described.blocks == 2048 and described.nguid == b"\x0f" * 16


def test_nguid_follows_from_the_name() -> None:
    """Two processes with the same document are two paths to the same namespace."""
    found = [parse_target_config(document(nqn=nqn)).subsystems[0].describe() for nqn in (NQN, NQN, "nqn.other")]
    assert found[0] == found[1]
    assert found[0][0].nguid != found[2][0].nguid


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ([], "Expected `object`"),
        ({}, "missing required field `listen`"),
        (document() | {"listen": []}, "listen: Expected `array` of length >= 1"),
        (document() | {"listen": [{"address": "here"}]}, "listen[0]: 'here' does not appear to be an IP"),
        (document() | {"listen": [{"address": "::1", "port": 70000}]}, "listen[0].port: Expected `int` <= 65535"),
        (document(nqn="st1"), "subsystems[0].nqn: Expected `str` matching regex '^nqn"),
        (document(namespaces=[]), "subsystems[0].namespaces: Expected `array` of length >= 1"),
        (document(allowed_hosts="h1"), "subsystems[0].allowed_hosts: Expected `array | null`"),
        (document(colour=1), "subsystems[0]: Object contains unknown field `colour`"),
        (document({"size": 5000}), "subsystems[0].namespaces[0]: size: 5000 is no multiple of the block"),
        (document({"size": True}), "subsystems[0].namespaces[0].size: Expected `int`"),
        (document({"block": 1024}), "subsystems[0].namespaces[0].block: Invalid enum value 1024"),
        (document({"backend": "tape"}), "subsystems[0].namespaces[0].backend: Invalid enum value 'tape'"),
        (document({"backend": "file"}), "subsystems[0].namespaces[0]: path: a file needs one"),
        (document({"path": "/x"}), "path: a file needs one, and nothing else has one"),
        (document({"media": {"rate": -1}}), "subsystems[0].namespaces[0].media.rate: Expected `int` >= 0"),
        (document({"media": {"tape": 1}}), "subsystems[0].namespaces[0].media: Object contains unknown field"),
        (document({"nguid": "00" * 16}), "nguid: 32 hexadecimal digits that are not all 0"),
        (document({"nguid": "x"}), "subsystems[0].namespaces[0].nguid: Expected `str` matching"),
        (document() | {"controller": {"cpda": 32}}, "controller.cpda: Expected `int` <= 31"),
        (document() | {"controller": {"header_digest": 1}}, "controller.header_digest: Expected `bool`"),
        (document() | {"controller": {"colour": 1}}, "controller: Object contains unknown field `colour`"),
        (document() | {"subsystems": 2 * document()["subsystems"]}, "subsystems: two have the same nqn"),
        (
            document() | {"subsystems": [*document({"nguid": "1f" * 16})["subsystems"],
                                         *document({"nguid": "1f" * 16, "size": 8192}, nqn="nqn.b")["subsystems"]]},
            "namespaces with the nguid 1f1f",
        ),
    ],
)  # fmt: skip
def test_key_that_is_wrong(written: object, words: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse_target_config(written)
    assert words in str(caught.value)
