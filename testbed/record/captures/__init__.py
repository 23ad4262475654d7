"""Capture files: frames out of pcap and pcapng, and the packets of our transports in them."""
