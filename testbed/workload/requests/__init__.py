"""Requests for inference: when they arrive, how long prompts and answers are, and public traces of both."""
