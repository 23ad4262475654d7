"""Training and serving of language models as traffic."""
