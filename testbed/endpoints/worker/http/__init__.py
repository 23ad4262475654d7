"""Requests and answers over HTTP/1.1: reading them, connections that carry them, and the traffic of one program."""
