"""What goes wrong with a lab while its traffic runs."""
