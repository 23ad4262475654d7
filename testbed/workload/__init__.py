"""The traffic of AI training as data: what is sent from whom to whom, after what. Pure: nothing here sends anything."""
