"""GPUs of a scale-up domain for programs in a host: `gpu_agent` drives an endpoint and whatever waits beside it, and
`gpus` is the Python API."""
