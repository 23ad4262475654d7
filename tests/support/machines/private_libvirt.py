"""libvirt and Vagrant in namespaces of their own: no daemon, network, domain or box outlives the test, however it ends.

Debian's libvirtd runs there as root, on directories of the test's, without a bus and without control groups. The
network that Vagrant makes for its machines exists in there alone, and nothing can be fetched through it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

PROGRAMS = {
    "vagrant": "vagrant",
    "libvirtd": "libvirt-daemon-system",
    "virsh": "libvirt-clients",
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "dnsmasq": "dnsmasq-base",
    "iptables": "iptables",
    "rsync": "rsync",
}
PLUGIN = Path("/usr/share/rubygems-integration/all/specifications")
END_S = 60

# The first process of the namespace stays this shell, because it takes up orphans: libvirt waits until they are gone.
_SETUP = """
set -eu
cd "$1" && shift
mkdir -p lib cache etc home
cp -a /etc/libvirt/. etc/
mount --bind lib /var/lib/libvirt
mount --bind cache /var/cache/libvirt
mount --bind etc /etc/libvirt
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/libvirt /run/lock
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = [ ]
dynamic_ownership = 0
remember_owner = 0
stdio_handler = "file"
END
ip link set lo up
libvirtd >libvirtd.log 2>&1 &
until virsh --connect qemu:///system version >/dev/null 2>&1; do
    kill -0 $! || { cat libvirtd.log; exit 70; }
done
code=0
(cd "$PROJECT" && "$@") </dev/null || code=$?
exit "$code"
"""


def lacking() -> str:
    """Debian packages that are missing, "" if none is."""
    missing = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if not list(PLUGIN.glob("vagrant-libvirt-*.gemspec")):
        missing.add("vagrant-libvirt")
    return " ".join(sorted(missing))


def run_beside_libvirt(
    scratch: Path, project: Path, script: str, environment: Mapping[str, str], *, log: Path, timeout_s: float
) -> int:
    """Run a shell script in the directory `project` where a libvirtd answers; its exit code, its words in `log`.

    `scratch` has everything that libvirt and Vagrant keep; the caller removes it.
    """
    namespaces = ["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL", "--", *namespaces, "--mount-proc", "--"),
                *("bash", "-c", _SETUP, "bash", str(scratch), "bash", "-euc", script),
            ],
            env={
                **os.environ,
                "HOME": str(scratch / "home"),
                "VAGRANT_HOME": str(scratch / "vagrant"),
                "VAGRANT_DOTFILE_PATH": str(scratch / "machine"),
                "VAGRANT_CHECKPOINT_DISABLE": "1",
                "PROJECT": str(project),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            return process.wait(timeout_s)
        finally:
            if process.poll() is None:  # unshare kills its child, and with it everything in the namespaces
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(END_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
