"""Programs of other projects that send flows between hosts: iperf3 over TCP, perftest over RDMA devices."""
