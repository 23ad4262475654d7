"""The lab VM: its image, its machine, what runs in it, and labs on other machines over SSH."""
