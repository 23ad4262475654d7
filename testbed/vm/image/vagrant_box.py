"""A Vagrant box for libvirt, made of the lab VM's image: the same disk, kernel and initial file system.

The box starts from its kernel directly, with systemd, and lets `vagrant` in with the key that Vagrant replaces at the
first start. Source: vagrant-libvirt, "Box Format" (metadata.json, Vagrantfile, box.img).
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

from testbed.vm import cache
from testbed.vm.emulator import Emulator
from testbed.vm.image.build import INITRAMFS, KERNEL, VmImage
from testbed.vm.image.tool import run_tool

DISK = "box.img"
KERNEL_LINE = "console=ttyS0 quiet net.ifnames=0 testbed.root=/dev/vda testbed.vagrant"
_VAGRANTFILE = f"""\
# What only this box needs; the project's own Vagrantfile has the rest.
Vagrant.configure("2") do |config|
  config.ssh.username = "vagrant"
  config.vm.provider :libvirt do |libvirt|
    libvirt.kernel = File.join(File.dirname(__FILE__), "{KERNEL}")
    libvirt.initrd = File.join(File.dirname(__FILE__), "{INITRAMFS}")
    libvirt.cmd_line = "{KERNEL_LINE}"
    libvirt.disk_bus = "virtio"
  end
end
"""


def write_box(emulator: Emulator, image: VmImage, target: Path) -> None:
    """Write the box. It is there whole or not at all."""
    size = image.disk.stat().st_size
    with cache.scratch("box") as scratch:
        convert = [*emulator.image_tool, "convert", "-f", "raw", "-O", "qcow2", str(image.disk), str(scratch / DISK)]
        run_tool(convert, {}, name="qemu-img")
        metadata = {"provider": "libvirt", "format": "qcow2", "virtual_size": -(-size // (1 << 30))}
        with cache.room_on(scratch):
            (scratch / "metadata.json").write_text(json.dumps(metadata) + "\n")
            (scratch / "Vagrantfile").write_text(_VAGRANTFILE)
            for file in (image.kernel, image.initramfs):
                shutil.copyfile(file, scratch / file.name)
        unfinished = target.with_name(target.name + ".unfinished")
        try:
            with cache.room_on(target), tarfile.open(unfinished, "w:gz", compresslevel=1) as tar:
                for file in sorted(scratch.iterdir()):
                    tar.add(file, arcname=file.name)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
