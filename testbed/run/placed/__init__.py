"""What of a scenario is where: its lab, the ranks of its workload on hosts and NICs, and the traffic between them."""
