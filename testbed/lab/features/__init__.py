"""What a lab may have: a folder for each feature, with its keys, its plan, how it is applied and how it is watched."""
