"""Looking at a running lab: convergence, checks, sessions, events, round-trip times."""
