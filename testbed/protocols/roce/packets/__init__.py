"""RoCEv2 packets: headers to bytes and back, and the checksum that covers them."""
