"""The whole machine as the console knows it: its labs, and whether its figures can be trusted."""
