"""Records a run of a PyTorch model.

    session.py   one capture: enters the modes, runs the model, hands out the record
    modes.py     what PyTorch tells us of every call: function level and ATen level
    modules.py   module calls and autograd.Function calls
    tape.py      raw events, in order, as cheap to write as possible
    kinds.py     what is known of a function before it is called: metadata getter, in-place, view
    saving.py    which contents to keep, zero-copy until somebody writes
    finish.py    tape → record, when the record is first read
    backward.py  gradients and backward ops, owned by forward ops
    validate.py  proves a record against the model
    private.py   the one file that touches PyTorch's private names

The tape is written while the model runs, so every line of ``modes.py`` and ``tape.py`` is paid for per op.
"""
