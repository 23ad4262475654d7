"""RoCEv2: the transport of InfiniBand over UDP, as a protocol core without I/O."""
