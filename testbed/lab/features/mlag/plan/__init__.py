"""Hosts with a link group to two leaves that are one LACP partner (`homing: mlag`)."""
