"""The figures that a run should measure at best, or with a given load balancing: ideals, rooflines, fair shares."""
