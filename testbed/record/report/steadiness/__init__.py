"""The steadiness of the figures of scenarios, over several runs of each."""
