"""What the console knows of the whole machine: its labs, and whether its figures can be trusted."""
