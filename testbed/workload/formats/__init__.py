"""Workloads in the files of other tools: read (htsim, HPCC, Chakra, SimAI, nccl-tests) and written (htsim, HPCC)."""

from testbed.workload.formats.alltoallv import decode_alltoallv_matrix
from testbed.workload.formats.chakra import decode_trace
from testbed.workload.formats.chakra_graph import combine_traces, parse_comm_groups
from testbed.workload.formats.connection_matrix import (
    decode_connection_matrix,
    encode_connection_matrix,
    parse_connection_matrix,
)
from testbed.workload.formats.conventions import Format, on_ranks
from testbed.workload.formats.expansion import CollectiveExpander, CollectiveRequest, expand_collective
from testbed.workload.formats.export import Exported, ExportError
from testbed.workload.formats.hpcc import FlowCompletion, decode_hpcc_flows, encode_fct, encode_hpcc_flows
from testbed.workload.formats.registry import ImportOptions, decode_workload, load_workload
from testbed.workload.formats.simai import parse_simai_workload
from testbed.workload.formats.simai_schedule import decode_simai_workload

__all__ = [
    "CollectiveExpander",
    "CollectiveRequest",
    "ExportError",
    "Exported",
    "FlowCompletion",
    "Format",
    "ImportOptions",
    "combine_traces",
    "decode_alltoallv_matrix",
    "decode_connection_matrix",
    "decode_hpcc_flows",
    "decode_simai_workload",
    "decode_trace",
    "decode_workload",
    "encode_connection_matrix",
    "encode_fct",
    "encode_hpcc_flows",
    "expand_collective",
    "load_workload",
    "on_ranks",
    "parse_comm_groups",
    "parse_connection_matrix",
    "parse_simai_workload",
]
