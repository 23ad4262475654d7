"""`ibframes` of a host: sends datagrams to a LID over the subnet's wires, or receives and counts them.

What it prints is one line of JSON. Times are told in both scales: `lab_s` is this machine's, `fabric_s` that of the
fabric, which the lab is so many times slower than; rates are the fabric's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.endpoints.infiniband.adapter import MOST_PAYLOAD, AdapterError, HostAdapter
from testbed.protocols.errors import DecodeError, UsageError

HOST_VARIABLE = "TESTBED_INFINIBAND_HOST"
_OVERHEAD_BYTES = 8 + 12 + 8 + 4 + 2
"""LRH, BTH, DETH, ICRC and VCRC of a datagram."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ends the program where it is none."""
    parser = argparse.ArgumentParser(prog="ibframes", description=__doc__)
    parser.add_argument("-C", "--Ca", default="", help="another HCA than the host's first, such as rail2")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds that a frame may wait (30)")
    verbs = parser.add_subparsers(dest="verb", required=True)
    send = verbs.add_parser("send", help="send datagrams to a LID")
    send.add_argument("lid", type=lambda text: int(text, 0))
    send.add_argument("--frames", type=int, default=1000)
    send.add_argument("--bytes", type=int, default=MOST_PAYLOAD, help="of a datagram's payload, a multiple of 4")
    send.add_argument("--sl", type=int, help="service level; by default that of the path")
    send.add_argument("--pkey", type=lambda text: int(text, 0), help="by default that of the host's partition")
    receive = verbs.add_parser("receive", help="count datagrams that come in")
    receive.add_argument("--frames", type=int, default=1000, help="end after so many")
    return parser.parse_args(arguments)


def send(adapter: HostAdapter, options: argparse.Namespace) -> dict[str, Any]:
    """Send what is asked for; what came of it."""
    begun = time.monotonic()
    payload = bytes(index & 0xFF for index in range(options.bytes))
    for number in range(options.frames):
        adapter.send(options.lid, payload, psn=number, sl=options.sl, pkey=options.pkey)
    return _result(adapter, options.frames, options.frames * options.bytes, time.monotonic() - begun)


def receive(adapter: HostAdapter, options: argparse.Namespace) -> dict[str, Any]:
    """Count datagrams, from the first one on; `missing` are numbers that were left out between them."""
    print(json.dumps({"lid": adapter.lid}), flush=True)  # whoever is to send may begin
    frames = size = wrong = missing = 0
    begun = 0.0
    expected: dict[int, int] = {}
    last = begun
    while frames < options.frames:
        try:
            one = adapter.receive()
        except TimeoutError:
            break
        except DecodeError:
            wrong += 1
            continue
        if one is None:
            break
        last = time.monotonic()
        begun = begun or last
        frames, size = frames + 1, size + len(one.payload)
        missing += max(0, one.psn - expected.get(one.slid, 0))
        expected[one.slid] = one.psn + 1
    return _result(adapter, frames, size, last - begun) | {"wrong": wrong, "missing": missing}


def _result(adapter: HostAdapter, frames: int, size: int, lab_s: float) -> dict[str, Any]:
    fabric_s = lab_s / adapter.time_scale
    return {
        "frames": frames,
        "bytes": size,
        "lab_s": round(lab_s, 6),
        "fabric_s": fabric_s,
        "time_scale": adapter.time_scale,
        "goodput_bps": round(size * 8 / fabric_s) if fabric_s else 0,
        "link_bps": adapter.rate_bps * adapter.time_scale,
        "payload_share": round(options_share(size, frames), 4),
    }


def options_share(size: int, frames: int) -> float:
    """Return the payload's share of what was on the link."""
    return size / (size + frames * _OVERHEAD_BYTES) if frames else 0.0


def adapter_path(settings: Any, host: str, chosen: str) -> Path:
    """Return the socket of an HCA of a host by the settings of the lab's tools. Raises `UsageError`."""
    hcas = list(settings["hcas"].get(host, ()))
    if not hcas:
        raise UsageError("this node has no HCA")
    if chosen and chosen not in hcas:
        raise UsageError(f"{host} has no HCA {chosen}: it has {', '.join(hcas)}")
    if not settings["wires"]:
        raise UsageError("the subnet of this lab is too large for wires: no frames go over it")
    return Path(settings["wires"]) / f"hca-{host}:{chosen or hcas[0]}"


def main(settings_file: str) -> None:
    """Do what the command line says at an HCA of the host that the environment names."""
    options = parse_arguments(sys.argv[1:])
    settings = json.loads(Path(settings_file).read_text())
    try:
        path = adapter_path(settings, os.environ.get(HOST_VARIABLE, ""), options.Ca)
        with HostAdapter(path, options.timeout) as adapter:
            print(json.dumps((send if options.verb == "send" else receive)(adapter, options)), flush=True)
    except TimeoutError:
        sys.exit(f"ibframes: no frame has left within {options.timeout:g} s: its lane has no credits")
    except (AdapterError, UsageError) as error:
        sys.exit(f"ibframes: {error}")
