"""Machines that run the points of a sweep: reached over SSH, compared before anything runs, and judged as one record.

On each machine a `station` starts workers of Dask distributed (`engine`), which do no more than hand out the work; a
`seat` beside each worker reads the sweep there and forks a process for every run. Files go there (`parcel`), and JSON
comes back. All connections go through SSH, so nothing listens but loopbacks.
"""
