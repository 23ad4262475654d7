#!/bin/sh
# Two hosts on either side of two switches that forward IPv4 and IPv6, as namespaces: up | down | impair OPTIONS | mend.
# h1 and h3 have soft RDMA, h2 is for our endpoint, as no two can have UDP port 4791. `impair` takes netem's options.
set -eu

up() {
    modprobe -a ib_uverbs rdma_cm rdma_ucm rdma_rxe sch_netem
    rdma system set netns shared
    sysctl -qw net.core.netdev_max_backlog=20000 # of packets between veths: nothing is to be lost unless it is meant to
    for node in h1 h2 h3 s1 s2; do
        ip netns add "ri-$node"
        ip -n "ri-$node" link set lo up
    done
    # Host or switch, its interface, address and prefix of the link; then the other end's.
    join h1 eth1 2 1 s1 down1 1
    join h2 eth1 2 2 s2 down1 1
    join h3 eth1 2 3 s2 down2 1
    join s1 up1 1 9 s2 up1 2
    for switch in s1 s2; do
        ip netns exec "ri-$switch" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    done
    for host in 1 2 3; do
        ip -n "ri-h$host" route add default via "10.77.$host.1"
        ip -n "ri-h$host" -6 route add default via "fd77:$host::1"
    done
    ip -n ri-s1 route add 10.77.0.0/16 via 10.77.9.2
    ip -n ri-s1 -6 route add fd77::/16 via fd77:9::2
    ip -n ri-s2 route add 10.77.1.0/24 via 10.77.9.1
    ip -n ri-s2 -6 route add fd77:1::/64 via fd77:9::1
    for host in 1 3; do
        ip netns exec "ri-h$host" rdma link add "ri-h$host-eth1" type rxe netdev eth1
    done
}

join() {
    ip link add "$2" netns "ri-$1" mtu 4500 type veth peer name "$6" mtu 4500 netns "ri-$5"
    end "$1" "$2" "$3" "$4"
    end "$5" "$6" "$7" "$4"
}

end() {
    ip -n "ri-$1" link set "$2" up
    ip -n "ri-$1" address add "10.77.$4.$3/24" dev "$2"
    ip -n "ri-$1" address add "fd77:$4::$3/64" dev "$2" nodad
}

impair() {
    for switch in s1 s2; do
        tc -n "ri-$switch" qdisc add dev up1 root netem limit 10000 "$@"
    done
}

mend() {
    for switch in s1 s2; do
        tc -n "ri-$switch" -s -j qdisc show dev up1
        tc -n "ri-$switch" qdisc del dev up1 root
    done
}

down() {
    for host in 1 3; do
        rdma link delete "ri-h$host-eth1" || true
    done
    for node in h1 h2 h3 s1 s2; do
        ip netns delete "ri-$node" || true
    done
}

"$@"
