"""Guards of access ports: what a host may not send (addresses of others, too much broadcast, protocols of switches)."""
