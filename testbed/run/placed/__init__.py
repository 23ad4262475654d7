"""A scenario on its lab: the ranks of its workload on hosts and NICs, and the traffic between them."""
