"""Changes of a running lab's links, recorded so that they can be undone."""
