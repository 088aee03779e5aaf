"""torcheer: record a neural network once, and look at everything in the record.

    import torcheer as tl
    model_history = tl.log_forward_pass(model, x)

These are the public names. Each is fetched on first use, so that ``import torcheer`` is
silent, quick, and does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torcheer.api.compare import autodiff
    from torcheer.api.compare import copy_weights as copy_weights
    from torcheer.api.compare import register_layer_pair as register_layer_pair
    from torcheer.api.comparison import assert_equal, compare
    from torcheer.api.explore import explore
    from torcheer.api.history import load, log_forward_pass, validate
    from torcheer.api.model_summary import ModelSummary as ModelSummary
    from torcheer.api.model_summary import equal_weights as equal_weights
    from torcheer.api.model_summary import mark as mark
    from torcheer.api.model_summary import mark_all as mark_all
    from torcheer.api.model_summary import unmark as unmark
    from torcheer.api.profile import InspectorGadgets, profile, summary
    from torcheer.api.watch import attach as attach
    from torcheer.api.watch import setup as setup
    from torcheer.api.watch import watch
    from torcheer.diff.comparison import Comparison
    from torcheer.errors import TorcheerError
    from torcheer.history import ModelHistory
    from torcheer.profiling import register_formula as register_formula

__version__ = "0.1.0"

# What a session begins with, and so what `tl.` completes to. The others in _HOMES are for special cases and for those
# who come from another tool; they are found by name. A literal, because type checkers and tools/check_sizes.py read it
# without running it.
__all__ = [
    "Comparison",
    "InspectorGadgets",
    "ModelHistory",
    "TorcheerError",
    "__version__",
    "assert_equal",
    "autodiff",
    "compare",
    "explore",
    "load",
    "log_forward_pass",
    "profile",
    "summary",
    "validate",
    "watch",
]

_HOMES = {
    "Comparison": "torcheer.diff.comparison",
    "InspectorGadgets": "torcheer.api.profile",
    "ModelHistory": "torcheer.history",
    "ModelSummary": "torcheer.api.model_summary",
    "TorcheerError": "torcheer.errors",
    "assert_equal": "torcheer.api.comparison",
    "attach": "torcheer.api.watch",
    "autodiff": "torcheer.api.compare",
    "compare": "torcheer.api.comparison",
    "copy_weights": "torcheer.api.compare",
    "equal_weights": "torcheer.api.model_summary",
    "explore": "torcheer.api.explore",
    "load": "torcheer.api.history",
    "log_forward_pass": "torcheer.api.history",
    "mark": "torcheer.api.model_summary",
    "mark_all": "torcheer.api.model_summary",
    "profile": "torcheer.api.profile",
    "summary": "torcheer.api.profile",
    "register_formula": "torcheer.profiling",
    "register_layer_pair": "torcheer.api.compare",
    "setup": "torcheer.api.watch",
    "unmark": "torcheer.api.model_summary",
    "validate": "torcheer.api.history",
    "watch": "torcheer.api.watch",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is not None:
        value = getattr(import_module(home), name)
        globals()[name] = value  # the next use does not come here
        return value
    # Only a failed lookup pays for difflib.
    from torcheer.errors import near_misses

    hint = near_misses(name, [*_HOMES]) or " dir(torcheer) lists its public names."
    # With name and without obj, Python does not append a "Did you mean" of its own.
    raise AttributeError(f"torcheer has no attribute {name!r}.{hint}", name=name)


def __dir__() -> list[str]:
    return sorted(__all__)
