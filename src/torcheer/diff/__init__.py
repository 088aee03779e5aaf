"""Compares two records: which tensors are the same on both sides, and where the first difference arises.

Pure functions on records and contents of tensors; nothing here runs a model or knows a framework.

    arrays.py       contents of tensors as numpy arrays, whoever made them
    side.py         what a framework offers to ``autodiff``: the one seam through which models are run
    param_map.py    which parameter of one model is which of the other, and how its numbers are laid out
    leaves.py       leaf modules of two models: missing, extraneous, never called
    leaf_outputs.py what they returned, compared by brute force; final outputs; marks.py: of marked modules alone
    autodiff.py     forward, backward and a training step of two models, compared; its report
    report.py       the result of a comparison
"""
