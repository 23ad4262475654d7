"""Traffic that moves a program's bytes over transports in user space: endpoints at NICs' addresses, and their packets."""
