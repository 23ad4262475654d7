"""Traffic that moves a program's bytes over streams: the kernel's TCP, and rsocket over its soft RDMA."""
