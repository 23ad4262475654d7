"""Workloads that write to storage or read from it: checkpoints, datasets, models' weights, KV caches, jobs of fio."""

from testbed.workload.storage.checkpoint import Checkpoint, checkpoint_bytes_per_rank, generate_checkpoint
from testbed.workload.storage.datasets import DATASETS, DatasetStreaming, generate_dataset_streaming
from testbed.workload.storage.fio_jobs import FIO_JOB_PARAMETERS, FioJobs, check_fio_job, generate_fio_jobs
from testbed.workload.storage.kv_offload import KvOffload, generate_kv_offload
from testbed.workload.storage.prefix_cache import PrefixCache, generate_prefix_cache
from testbed.workload.storage.staging import FanOut, Staging, generate_staging
