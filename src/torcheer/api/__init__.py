"""The public functions, which join rooms: run something, get a view of its record. One file per job.

Frameworks are imported when something is to be run, so that opening a recording needs none.
"""
