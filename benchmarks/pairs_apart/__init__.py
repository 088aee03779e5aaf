"""A third set of pairs kept apart from the work on ``tl.compare``: families that no other set has, written twice.

A file has ``A`` and ``B``, the same network written by two hands, ``transfer(a, b)``, ``inputs()``, and at its end
``BUGS``: a bug is an edit of B's source, so that B reads as somebody would have written it, and its place is the line
that is edited. ``# @tag`` marks further lines that a report may name. All was written before anything was run on it.
"""
