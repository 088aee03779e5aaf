"""Pairs of models kept apart from the work on ``tl.compare``: eight architectures, each written twice, with bugs.

A file has ``A`` and ``B``, the same network written by two hands; ``B(bug)`` has that bug. ``transfer(a, b)`` gives B
the weights of A, ``inputs()`` is what both are given. A comment ``# label: bug`` marks the source lines, in A or in B,
that a report may name for a bug; a bug that shows in gradients alone is labelled by the parameter it spoils first.
The labels were written before anything was run on these pairs.
"""
