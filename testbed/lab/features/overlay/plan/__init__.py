"""Planning an overlay: tenants as VRFs and VNIs on switches, and what may pass between them."""
