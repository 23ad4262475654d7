"""A back end of InfiniBand: a real subnet manager, OpenSM, on a simulated management plane, ibsim.

`fabric.link_layer: infiniband` has the switches and links of a design, or those that a file lists, be a subnet. ibsim
holds its nodes, ports and tables, and answers management datagrams as they would; OpenSM finds the subnet by these,
gives out LIDs, computes forwarding tables and writes them; the tools that people use for InfiniBand ask by the same
way. Both run in a namespace of the lab, beside its nodes, as nobody.

`schema` has the keys, `fabric` what is refused of a whole fabric, `configuration` the files that ibsim and OpenSM are
started from, `plane` where they run, `simulator` ibsim and its prompt, `manager` the managers and their logs, `reading`
the tables as nodes hold them, which `asking` asks for where the tools run, `offline` a subnet without a lab. No data
crosses this plane: what carries frames by the tables is `testbed.protocols.infiniband`.
"""
