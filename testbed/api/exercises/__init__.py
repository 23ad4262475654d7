"""Exercises: labs in which something is broken, for learners to find and mend.

An exercise is one file of `shipped/`, by whose name it is called: a story, a topology, what is broken once its lab is
up, hints, goals that say whether it is mended, and a solution with its reason. Breaks and solutions are command lines
of testbed, so that all of it is done by the means that learners have. A file in that folder is an exercise; nothing
else registers it. `exercise` reads them, `attempt` is one in a lab that is up.
"""
