"""Sources, which pages look at: a lab that is up, or a run of a record. Both answer the same questions."""
