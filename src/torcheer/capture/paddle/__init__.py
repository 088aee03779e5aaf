"""Records a run of a Paddle layer (dynamic graph mode).

    session.py    one capture: runs the layer, hands out the record
    seeing.py     what is replaced for the time of a capture, so that ops and layer calls are seen
    recorder.py   ops and layer calls, written into the record as they happen
    tensors.py    tensors as the record knows them: metadata, memory, what is kept of their contents
    structure.py  the model's layers, parameters and buffers as data
    gradients.py  gradients seen in a backward pass
    private.py    the one file that touches Paddle's private names

Importing anything here imports Paddle, the extra ``torcheer[paddle]``.
"""

from torcheer.errors import MissingExtraError

try:
    import paddle as _paddle  # noqa: F401
except ImportError as error:
    raise MissingExtraError("paddlepaddle", "paddle", "Recording a Paddle layer") from error
