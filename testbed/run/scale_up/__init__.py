"""Scale-up domains in runs: `domains` says whose transfers go over their links, and by what; `pool` which ranks are
pooled memory, and `pool_grants` what they grant; `simulated` has domains by packets in the simulator's time, `loads`
what their links carried, and `faults` what can befall them.
"""
