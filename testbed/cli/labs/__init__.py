"""Verbs about whole labs, and about the files that describe them."""
