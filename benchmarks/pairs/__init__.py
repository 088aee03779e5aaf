"""Pairs of models that compute the same and are written differently, with bugs to plant into the second.

Each module offers ``BUGS`` (kind → what a right answer names) and ``make(bug, seed)``, which returns a ``Case``. The
lines of the second model that a bug changes are marked ``#@kind`` where it is written, before anything is run.
"""
