"""The parts that every lab has: nodes, links, addresses, routing and QoS.

A file becomes a model (`schema`, `fabric`, `model`), a model a list of operations (`plan`), and operations a lab
(`drivers`, `deploy`).
"""
