"""The section `tenants:`: who shares a network and is apart in it, as it is written, checked and resolved."""
