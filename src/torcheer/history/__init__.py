"""ModelHistory: look up any layer, operation, module or tensor of a recorded run.

A view: it reads a record and its payloads and computes nothing that belongs to the run. It never imports a
framework; tensors are whatever the payload store hands out.
"""

from torcheer.history.aten_view import AtenView
from torcheer.history.layer_view import LayerView
from torcheer.history.model_history import ModelHistory
from torcheer.history.module_view import CallView, ModuleView, ParamView
from torcheer.history.op_view import OpView
from torcheer.history.ranks import Ranks
from torcheer.history.session import Session

__all__ = [
    "AtenView",
    "CallView",
    "LayerView",
    "ModelHistory",
    "ModuleView",
    "OpView",
    "ParamView",
    "Ranks",
    "Session",
]
