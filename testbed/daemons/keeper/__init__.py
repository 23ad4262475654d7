"""The process that keeps the routers of an EVPN overlay: what zebra forgets of them, it has announced again."""
