"""The transports that can be measured, one module each; `registry` lists them."""
