"""Tenants: VRFs and VNIs of EVPN over VXLAN, what may pass between tenants, and the routers outside."""
