"""What moves a program's bytes over transports in user space: endpoints at the addresses of NICs, and their packets."""
