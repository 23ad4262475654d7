"""The QoS of ports: what of it is planned, and how."""
