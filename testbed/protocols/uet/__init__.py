"""Ultra Ethernet Transport (UE Specification 1.0.1/1.0.2): packet formats, delivery, semantics, congestion control."""
