"""UET packets: headers to bytes and back."""
