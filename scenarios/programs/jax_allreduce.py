"""An all-reduce with JAX over the hosts of a job, on CPUs, whose result is checked. Nothing in it knows of labs."""

import argparse
import os
import time

import jax
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--bytes", type=int, default=1 << 20)
parser.add_argument("--steps", type=int, default=6)
options = parser.parse_args()
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(
    os.environ["JAX_COORDINATOR_ADDRESS"], int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
)

from jax.experimental import multihost_utils  # noqa: E402  # once the processes know each other
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

mesh, ranks = Mesh(np.array(jax.devices()), ("ranks",)), len(jax.devices())
mine = np.full((1, options.bytes // 4), jax.process_index() + 1, np.float32)
arrays = multihost_utils.host_local_array_to_global_array(mine, mesh, PartitionSpec("ranks"))
add_up = jax.jit(lambda all_of_them: all_of_them.sum(0), out_shardings=NamedSharding(mesh, PartitionSpec()))
for step in range(options.steps):
    begin = time.perf_counter()
    total = add_up(arrays)
    total.block_until_ready()
    took = time.perf_counter() - begin
    if not (np.asarray(total.addressable_data(0)) == ranks * (ranks + 1) / 2).all():
        raise SystemExit(f"step {step}: the sum is wrong")
    if jax.process_index() == 0:
        print(f"step {step} took {took:.4f} s", flush=True)
