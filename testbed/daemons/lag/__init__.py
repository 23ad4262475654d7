"""Link aggregation: LACP, the host's aggregate without a bonding driver, and two leaves that are one LACP partner."""
