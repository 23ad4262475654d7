"""The settings of transports in user space on a lab: the times, marks and paths that their endpoints go by."""
