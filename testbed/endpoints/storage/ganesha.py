"""NFS-Ganesha as the server of a storage target: its configuration and its command line.

One process serves one address with NFSv4 alone, which needs neither rpcbind nor D-Bus. The data lies in a directory of
this machine (FSAL VFS), which must not be on tmpfs: VFS finds no file system there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

NFS_PORT = 2049
"""Registered with IANA for NFS."""
MOST_IO_BYTES = 1 << 20
"""The most bytes of a request: fio's engine fails with more, and so does a server by default (MaxRead, MaxWrite)."""
_PLACES = ("/var/tmp", "/var/lib", "/srv")
"""The file systems on which a directory may lie whose files are served, the best first."""
_IN_MEMORY = ("tmpfs", "ramfs")
PSEUDO = "/e"
"""The path of the export that clients see."""


def place_on_disk(mounts: str) -> str | None:
    """Return a directory for what is served that is not on tmpfs, by the text of /proc/self/mounts; None: none is.

    /tmp is on tmpfs in Debian 13.
    """
    kinds = {fields[1]: fields[2] for line in mounts.splitlines() if len(fields := line.split()) > 2}
    for place in _PLACES:
        above = [place, *(str(parent) for parent in Path(place).parents)]
        if next((kinds[path] for path in above if path in kinds), "") not in _IN_MEMORY:
            return place
    return None


def render_configuration(export: Path, address: str) -> str:
    """Return a configuration that serves `export` at an address."""
    return f"""NFS_CORE_PARAM {{
    NFS_Protocols = 4;
    Bind_addr = {address};
    NFS_Port = {NFS_PORT};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    allow_set_io_flusher_fail = true;
}}
NFSv4 {{ Graceless = true; Minor_Versions = 0, 1, 2; RecoveryBackend = fs; }}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{
    Export_Id = 1;
    Path = {export};
    Pseudo = {PSEUDO};
    Access_Type = RW;
    Squash = None;
    SecType = sys;
    Protocols = 4;
    FSAL {{ Name = VFS; }}
}}
"""


def server_arguments(configuration: Path, log: Path, pid: Path) -> list[str]:
    """Return the server's command line. It stays in the foreground (`-F`)."""
    return ["ganesha.nfsd", "-F", "-f", str(configuration), "-L", str(log), "-p", str(pid)]


def place(address: str, name: str) -> Mapping[str, str]:
    """Return the options of a job of fio on the file `name` there."""
    return {"nfs_url": f"nfs://{address}{PSEUDO}?version=4", "filename": name}
