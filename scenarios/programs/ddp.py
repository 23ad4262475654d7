"""Data-parallel training of a tiny transformer with PyTorch. Nothing in it knows of labs.

It learns to continue numbers that count up from anywhere, so that its loss falls within some steps. All that is random
is drawn from seeds: two runs of as many ranks compute the same losses, whatever the network did meanwhile.
"""

import argparse
import importlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument(
    "--backend", default="gloo", help="gloo, nccl, or lab with --module testbed.run.launch.torch_backend"
)
parser.add_argument("--module", default="", help="a module that registers the backend")
parser.add_argument("--path", default="", help="where else it may find packages, behind this Python's own")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--width", type=int, default=96)
options = parser.parse_args()
if options.path:
    sys.path.append(options.path)
if options.module:
    importlib.import_module(options.module)
torch.set_num_threads(1)
dist.init_process_group(options.backend)
rank, size = dist.get_rank(), dist.get_world_size()
computing_s = float(os.environ.get("LAB_PAD_S", "0"))  # stands for what a GPU would compute in a step

WORDS, LENGTH, BATCH = 32, 16, 8


class Transformer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(width, WORDS)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, words):
        return self.out(self.layers(self.words(words) + self.places, self.mask))


torch.manual_seed(1)
model = Transformer(options.width)
if rank == 0:
    print(f"{size} ranks, {4 * sum(one.numel() for one in model.parameters()):,} bytes of gradients", flush=True)
ddp = DistributedDataParallel(model, broadcast_buffers=False)
optimizer = torch.optim.Adam(ddp.parameters(), lr=3e-3)
torch.manual_seed(100 + rank)
for step in range(options.steps):
    words = (torch.randint(WORDS, (BATCH, 1)) + torch.arange(LENGTH + 1)) % WORDS
    begin = time.perf_counter()
    loss = nn.functional.cross_entropy(ddp(words[:, :-1]).transpose(1, 2), words[:, 1:])
    time.sleep(computing_s)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step} loss {loss.item():.6f} took {time.perf_counter() - begin:.4f} s", flush=True)

own = torch.cat([one.detach().flatten() for one in model.parameters()]).double().sum()
highest, lowest = own.clone(), own.clone()
dist.all_reduce(highest, dist.ReduceOp.MAX)
dist.all_reduce(lowest, dist.ReduceOp.MIN)
if highest != lowest:
    raise SystemExit(f"the replicas differ: {lowest.item()} to {highest.item()}")
dist.destroy_process_group()
