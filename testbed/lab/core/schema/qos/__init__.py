"""The section `qos:` of topology files: what may be written, and the profile of each port that follows."""
