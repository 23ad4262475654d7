"""The kinds of workload that a scenario may name, by family. `workload.registry` has them all."""
