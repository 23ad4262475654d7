"""NBD between hosts and storage targets: fio at the hosts, nbdkit at the targets."""

from __future__ import annotations

from typing import ClassVar

from testbed.endpoints.storage.nbdkit import NBD_PORT
from testbed.endpoints.worker.fio.settings import FioSettings
from testbed.endpoints.worker.transports.nbd import NbdSettings
from testbed.run.transports.fio_transport import FioTransport


class Nbd(FioTransport):
    """The medium's latency and rate are filters of nbdkit."""

    noun: ClassVar[str] = "NBD"
    server_port: ClassVar[int] = NBD_PORT
    programs: ClassVar[tuple[str, ...]] = ("fio", "nbdkit", "setpriv")
    defaults: ClassVar[FioSettings] = NbdSettings()

    def approximations(self) -> list[str]:
        return [
            *super().approximations(),
            "Targets' media are filters of nbdkit: a latency of each request in whole ms of lab time, and a rate of"
            " which, where nbdkit is older than 1.36, 2 s pass at once after a pause; `depth` counts for each"
            " connection.",
        ]


TRANSPORT = Nbd
