#!/bin/sh
# The first process of the virtual machine, in its Debian: what an init does for labs, then the agent, then power off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=1777 tmp /var/tmp
mkdir -p /dev/net
mknod /dev/net/tun c 10 200
ip link set lo up
hostname testbed-vm 2>/dev/null
cd "${0%/tests/*}" || exit 1
python3 "${0%/*}/guest_agent.py" /dev/vport*p1
busybox poweroff -f
