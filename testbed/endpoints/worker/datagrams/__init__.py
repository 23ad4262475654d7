"""Traffic of a program over transports in user space: endpoints at NICs' addresses, and their packets."""
