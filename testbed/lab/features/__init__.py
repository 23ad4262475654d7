"""The features of labs: a folder for each, with its keys, its plan, how it is applied and how it is watched."""
