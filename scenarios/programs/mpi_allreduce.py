"""An all-reduce over MPI, step by step, whose result is checked. Nothing in it knows of labs.

mpiexec -n 8 python mpi_allreduce.py --bytes 1048576 --steps 10
"""

import argparse
import os
import time

import numpy as np
from mpi4py import MPI

parser = argparse.ArgumentParser()
parser.add_argument("--bytes", type=int, default=1 << 20)
parser.add_argument("--steps", type=int, default=10)
options = parser.parse_args()
ranks = MPI.COMM_WORLD
computing_s = float(os.environ.get("LAB_PAD_S", "0"))  # stands for what a GPU would compute in a step

mine = np.full(options.bytes // 4, ranks.rank + 1, np.float32)
total = np.empty_like(mine)
for step in range(options.steps):
    ranks.Barrier()
    begin = time.perf_counter()
    time.sleep(computing_s)
    ranks.Allreduce(mine, total, MPI.SUM)
    took = ranks.allreduce(time.perf_counter() - begin, MPI.MAX)
    wrong = ranks.allreduce(int((total != ranks.size * (ranks.size + 1) / 2).sum()))
    if wrong:
        raise SystemExit(f"step {step}: {wrong} wrong elements")
    if ranks.rank == 0:
        print(f"step {step} took {took:.4f} s", flush=True)
