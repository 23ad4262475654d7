"""The command lines of servers of storage."""

from pathlib import Path

from testbed.endpoints.storage.ganesha import place, place_on_disk, render_configuration, server_arguments
from testbed.endpoints.storage.nbdkit import NbdExport, can_limit_bursts

PLAIN = NbdExport(address="10.0.0.1", port=10809, path="/dev/shm/disk", depth=4)


def test_nbdkit_without_a_medium_has_no_filters() -> None:
    argv = PLAIN.arguments(can_limit_bursts=True)
    assert argv[:3] == ["nbdkit", "--foreground", "--exit-with-parent"]
    assert argv[argv.index("-i") + 1] == "10.0.0.1" and "--threads=4" in argv
    assert argv[-2:] == ["file", "file=/dev/shm/disk"]
    assert PLAIN.place == {"uri": "nbd://10.0.0.1:10809/"}


def test_a_medium_is_filters_before_the_file() -> None:
    """Rates are bytes/s here and bit/s there; a latency is at least a millisecond there."""
    export = NbdExport(address="10.0.0.1", port=10809, path="/d", rate=1000, latency_us=300)
    argv = export.arguments(can_limit_bursts=True)
    assert argv.index("--filter=delay") < argv.index("--filter=rate") < argv.index("file")
    assert argv[argv.index("file") + 2 :] == ["rdelay=1ms", "wdelay=1ms", "rate=8000", "burstiness=0.05"]
    assert "burstiness=0.05" not in export.arguments(can_limit_bursts=False)


def test_help_tells_whether_bursts_can_be_limited() -> None:
    assert can_limit_bursts("rate=BITSPERSEC  Limit total bandwidth.\nburstiness=SECS  Set the bucket.\n")
    assert not can_limit_bursts("rate=BITSPERSEC  Limit total bandwidth.\n")


def test_ganesha_serves_version_4_at_one_address() -> None:
    text = render_configuration(Path("/srv/export"), "10.0.0.1")
    assert "Bind_addr = 10.0.0.1;" in text and "NFS_Protocols = 4;" in text and "Path = /srv/export;" in text
    assert text.count("{") == text.count("}")
    argv = server_arguments(Path("g.conf"), Path("g.log"), Path("g.pid"))
    assert argv == ["ganesha.nfsd", "-F", "-f", "g.conf", "-L", "g.log", "-p", "g.pid"]
    assert place("10.0.0.1", "step5") == {"nfs_url": "nfs://10.0.0.1/e?version=4", "filename": "step5"}


def test_what_ganesha_serves_is_on_a_disk() -> None:
    """By the mount above a directory that is nearest to it, and by the last one there."""
    root, in_memory = "/dev/vda / ext4 rw 0 0\n", "tmpfs {} tmpfs rw 0 0\n"
    assert place_on_disk(root + in_memory.format("/tmp")) == "/var/tmp"
    assert place_on_disk(root + in_memory.format("/var/tmp")) == "/var/lib"
    assert place_on_disk(root + in_memory.format("/var")) == "/srv"
    assert place_on_disk(in_memory.format("/")) is None
    assert place_on_disk(in_memory.format("/") + root) == "/var/tmp"
