"""Hosts with a link group to two leaves, which are one LACP partner (MLAG), and hosts that speak BGP with theirs."""
