"""What hosts write to storage and read from it: checkpoints, datasets."""

from testbed.workload.storage.checkpoint import (
    Checkpoint,
    checkpoint_bytes_per_rank,
    generate_checkpoint,
)
from testbed.workload.storage.datasets import DATASETS, DatasetStreaming, generate_dataset_streaming

__all__ = [
    "DATASETS",
    "Checkpoint",
    "DatasetStreaming",
    "checkpoint_bytes_per_rank",
    "generate_checkpoint",
    "generate_dataset_streaming",
]
