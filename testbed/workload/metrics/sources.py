"""Sources that several metrics name, and words that explain them."""

NCCL = "nccl-tests doc/PERFORMANCE.md"
DRAFT = "draft-calabria-bmwg-ai-fabric-training-bench-04 (individual Internet-Draft, 2026-08-12)"
HPCC = "HPCC (SIGCOMM 2019), analysis/fct_analysis.py"
JAIN = "Jain, Chiu, Hawe 1984 (DEC-TR-301)"
HTSIM = "uet-htsim, validate.py"
MMR = "Gangidi et al., SIGCOMM 2024; " + DRAFT
PERCENTILE_RULE = "RFC 2330 section 11.3 for the percentile"
FAILURE = "RFC 6412, RFC 6413"
PAUSE = "IEEE 802.1Q clause 36; " + DRAFT

PERCENTILE = "percentile: the smallest sample that the stated share of all samples do not exceed"
"""The words that explain a percentile in a formula."""
