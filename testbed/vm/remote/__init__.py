"""Labs on other machines, over SSH."""
