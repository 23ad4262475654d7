"""Reading what was measured: tools' output, the machine, its versions, the ports' counters."""
