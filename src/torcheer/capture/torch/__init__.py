"""Records a run of a PyTorch model.

While the model runs (every line is paid for per op):
    session.py    one capture: enters the modes, runs the model, hands out the record
    modes.py      what PyTorch tells of every call: function level and ATen level
    modules.py    module calls and autograd.Function calls
    backward.py   backward passes through the graph of the run
    tape.py       raw events, in order, as cheap to write as possible
    kinds.py      what is known of a function before it is called: metadata getter, in-place, view
    saving.py     which contents to keep, zero-copy until somebody writes
    interrupts.py Ctrl-C leaves nothing replaced
    compiled.py   torch.compile'd code runs as its eager source

Before it runs:
    inputs.py     how the user's arguments become a call
    select.py     ``layers_to_save``, checked and decided

When the record is first read:
    finish.py     tape → record; ``finish_values`` and ``finish_backward`` are its parts
    structure.py  the model's modules and params as data
    names.py      what functions are called
    diagnose.py   what the record cannot show

For ``validate``:
    validate.py   the runs that are compared
    evidence.py   copies of what each call read and wrote
    proof.py      the checks a record must stand by itself
    state.py      a model and the random numbers before and after a run

private.py is the one file that touches PyTorch's private names.
"""

from __future__ import annotations

from importlib.util import find_spec

from torcheer.errors import MissingExtraError

if find_spec("torch") is None:
    raise MissingExtraError("torch", "", "Running a PyTorch model (not reading recordings)")
