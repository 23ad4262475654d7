"""The transport security sublayer (TSS) of UET, and what else protects packets on their way."""
