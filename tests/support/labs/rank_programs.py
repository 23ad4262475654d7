"""Programs for the ranks of launches, of the standard library alone, or of MPI."""

from __future__ import annotations

RING = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
peers, count = os.environ["LAB_PEERS"].split(","), int(sys.argv[1])
family = socket.AF_INET6 if ":" in peers[rank] else socket.AF_INET
port = int(os.environ["MASTER_PORT"])
listener = socket.create_server((peers[rank], port + rank), family=family)
if len(sys.argv) > 2 and rank == 0:
    time.sleep(float(sys.argv[2]))
end = time.monotonic() + 20
while True:
    try:
        there = (rank + 1) % size
        after = socket.create_connection((peers[there], port + there), source_address=(peers[rank], 0), timeout=5)
        break
    except OSError:
        if time.monotonic() > end: raise
        time.sleep(0.02)
before, (whom, *_) = listener.accept()
assert whom == peers[rank - 1], (whom, peers)
data, got = bytes([rank]) * count, b""
after.setblocking(True)
import threading
sending = threading.Thread(target=after.sendall, args=(data,))
sending.start()
while len(got) < count:
    part = before.recv(1 << 16)
    assert part
    got += part
sending.join()
assert got == bytes([(rank - 1) % size]) * count
print("ring", rank, flush=True)
"""
"""Each rank sends so many bytes to the next, and checks those of the one before; rank 0 may begin late."""

ALL_REDUCE = """
import sys, time
import numpy as np
from mpi4py import MPI
comm, size, times = MPI.COMM_WORLD, int(sys.argv[1]), []
mine, total = np.full(size // 4, comm.rank + 1, np.float32), np.empty(size // 4, np.float32)
for _ in range(int(sys.argv[2])):
    comm.Barrier()
    begin = time.perf_counter()
    comm.Allreduce(mine, total)
    times.append(time.perf_counter() - begin)
    assert (total == comm.size * (comm.size + 1) / 2).all()
worst = comm.allreduce(sorted(times)[len(times) // 2], MPI.MAX)
if comm.rank == 0:
    print("all-reduce", comm.size, worst, flush=True)
"""
"""The median time of an all-reduce of so many bytes, so often; every element is checked."""

DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1), os.close(2)
        time.sleep(600)
    os._exit(0)
os.wait()
"""
"""Leaves a daemon, as daemon(7) has it: its parent is init, and no pipe of ours is open in it."""

STEPS = """
import sys, time
import numpy as np
from mpi4py import MPI
comm, size = MPI.COMM_WORLD, int(sys.argv[1])
mine, total = np.full(size // 4, comm.rank + 1, np.float32), np.empty(size // 4, np.float32)
comm.Allreduce(mine, total)  # connections are made
for step in range(int(sys.argv[2])):
    comm.Barrier()
    begin = time.perf_counter()
    comm.Allreduce(mine, total)
    took = comm.allreduce(time.perf_counter() - begin, MPI.MAX)
    assert (total == comm.size * (comm.size + 1) / 2).all()
    if comm.rank == 0:
        print("step", step, took, flush=True)
"""
"""All-reduces of so many bytes, each with its time as the last rank to end has it; every element is checked."""

GLOO_STEPS = """
import sys, time
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size, count = dist.get_rank(), dist.get_world_size(), int(sys.argv[1]) // 4
mine = torch.empty(count)
for step in range(int(sys.argv[2])):
    mine.fill_(rank + 1)
    dist.barrier()
    begin = time.perf_counter()
    dist.all_reduce(mine)
    took = torch.tensor(time.perf_counter() - begin)
    assert (mine == size * (size + 1) / 2).all()
    dist.all_reduce(took, dist.ReduceOp.MAX)
    if rank == 0:
        print("step", step, took.item(), flush=True)
"""
"""The same by PyTorch, over gloo."""

PLAIN_ALL_REDUCE = """
import array, sys
from mpi4py import MPI
comm, count = MPI.COMM_WORLD, int(sys.argv[1]) // 4
mine, total = array.array("f", [comm.rank + 1]) * count, array.array("f", [0]) * count
for _ in range(int(sys.argv[2])):
    comm.Allreduce(mine, total)
    assert set(total) == {comm.size * (comm.size + 1) / 2}
print("all-reduce", comm.size, MPI.Get_processor_name(), MPI.Get_library_version().split()[0], flush=True)
"""
"""All-reduces of so many bytes, so often, without numpy; each rank says where it is and whose MPI it has."""
