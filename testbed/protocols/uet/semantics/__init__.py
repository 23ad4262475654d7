"""Semantic sublayer (SES, UE Specification 1.0 section 3.4): operations, messages and what they do to memory."""
