"""Strict YAML: a file as a document of which every key and value knows its place."""
