"""Workloads read from the files of other tools: htsim, HPCC, Chakra, SimAI, nccl-tests."""

from testbed.workload.formats.alltoallv import decode_alltoallv_matrix
from testbed.workload.formats.chakra import decode_trace
from testbed.workload.formats.chakra_graph import combine_traces, parse_comm_groups
from testbed.workload.formats.connection_matrix import decode_connection_matrix, parse_connection_matrix
from testbed.workload.formats.conventions import FileFormat, on_ranks
from testbed.workload.formats.hpcc import decode_hpcc_flows
from testbed.workload.formats.registry import ImportOptions, decode_workload, load_workload
from testbed.workload.formats.simai import parse_simai_workload
from testbed.workload.formats.simai_schedule import decode_simai_workload
