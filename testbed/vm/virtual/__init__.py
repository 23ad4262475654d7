"""The lab VM in virtual time."""
