"""Images of containers, and where Debian packages for all images come from."""
