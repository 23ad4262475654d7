"""Whether a lab's networks are apart and its access ports guarded, proved by real packets and real attacks."""
