"""Checks of a live lab that are programs of their own."""
