"""The public functions that compare models and recordings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torcheer.api.history import is_paddle
from torcheer.errors import ComparisonError, MissingExtraError
from torcheer.record.frames import callers

if TYPE_CHECKING:
    from torcheer.diff.autodiff import AutodiffReport
    from torcheer.diff.param_map import ParamMap
    from torcheer.diff.side import Side


def autodiff(
    model_a: Any,
    model_b: Any,
    inp: Any,
    auto_weights: bool = True,
    options: Mapping[str, Any] | None = None,
    *,
    layer_map: Mapping[str, str] | None = None,
    param_map: ParamMap | None = None,
    loss_fn: Any = None,
    optimizers: Any = None,
    steps: int | None = None,
    show: bool = True,
) -> AutodiffReport:
    """Run two models forward, backward and through a training step on one input, and report what differs.

    model_a, model_b: each a ``torch.nn.Module`` or a ``paddle.nn.Layer``, in either order.
    inp: the input; a tensor, an array, a tuple of positional arguments or a dict of keyword arguments. Each model
        gets tensors of its own framework, and float32 ones of float64 arrays if its parameters are float32.
    auto_weights: give both models the same seeded weights first, carried over by the parameter map.
    layer_map: layers of the first model to those of the second, ``{"fc1": "head.0"}``, where it cannot be told.
    param_map: which parameter of the second model is which of the first, where more than the layers must be told;
        ``copy_weights`` returns one.
    options: ``atol`` and ``rtol``; ``seed`` of the weights; ``steps``: training steps; ``compare_mode``: "strict" or
        "mean"; ``diff_phase``: "both", "forward" or "backward"; ``single_step``: give each layer of the second model
        what its counterpart was given.
    loss_fn: from a model's output to its loss, or one such function per model; without one, every output gets the
        same random gradient.
    optimizers: one per model, for the training steps; without them, plain gradient descent.
    steps: training steps; the same as ``options={"steps": …}``.
    show: print the report, as PPAutoDiff does. It is returned in any case, and true when nothing differs.

    Both models are left as they were.
    """
    # numpy, and the frameworks: only a comparison needs them.
    from torcheer.diff.autodiff import autodiff as run
    from torcheer.diff.layer_map import known_of, map_layers

    options = {**(options or {}), **({} if steps is None else {"steps": steps})}
    if is_onnx(model_a) or is_onnx(model_b):
        raise ComparisonError("autodiff trains both models, and an ONNX model has no backward pass. Use tl.compare.")
    if inp is None:
        raise ComparisonError("autodiff runs both models on inp, and inp is None. Pass () where they take no input.")
    given = _pair("optimizers", optimizers if isinstance(optimizers, (tuple, list)) else (optimizers, optimizers))
    losses = _pair("loss_fn", loss_fn if isinstance(loss_fn, (tuple, list)) else (loss_fn, loss_fn))
    side_a = side_of(model_a, inp, loss=losses[0], optimizer=given[0])
    side_b = side_of(model_b, inp, loss=losses[1], optimizer=given[1])
    if param_map is None:
        param_map = map_layers(known_of(side_a), known_of(side_b), layer_map)
    report = run(side_a, side_b, auto_weights=auto_weights, options=options, param_map=param_map)
    report.called_from = callers(sys._getframe(1))
    if show:
        print(report)
    return report


def _pair(name: str, given: Sequence[Any]) -> Sequence[Any]:
    if len(given) != 2:
        raise ComparisonError(f"{name} has {len(given)} entries. It takes two: for the first model and for the second.")
    return given


def copy_weights(source: Any, target: Any, *, layer_map: Mapping[str, str] | None = None, inp: Any = None) -> ParamMap:
    """Set the weights of one model into another, of whichever framework, and return which tensor went where.

    layer_map: layers of ``source`` to those of ``target``, where it cannot be told.
    inp: an input of both. The models are run on it if only the order of their calls can tell which layer is which.
    """
    # As above.
    from torcheer.diff.layer_map import known_of, map_layers
    from torcheer.diff.param_map import check_complete

    from_side, to_side = side_of(source, inp), side_of(target, inp)
    can_run = inp is not None
    found = map_layers(known_of(from_side, can_run=can_run), known_of(to_side, can_run=can_run), layer_map)
    check_complete(found, ("the source", "the target"))
    shapes = {name: array.shape for name, array in to_side.weights().items()}
    to_side.set_weights(found.convert(from_side.weights(), shapes))
    return found


def register_layer_pair(
    layer: type | str,
    module: type | str,
    *,
    names: Mapping[str, str] | None = None,
    transforms: Mapping[str, str] | None = None,
) -> None:
    """Tell that a Paddle layer of your own and a PyTorch module of your own are the same kind of layer.

    layer, module: the classes, or their names.
    names: parameters and buffers of the Paddle layer by their names in the module, where these differ:
        ``{"gamma": "weight"}``.
    transforms: how a parameter of the Paddle layer is laid out against the module's: ``{"gamma": "transpose"}``.

    Both must be classes with tensors of their own; what they are made of is mapped by itself.
    """
    # numpy: only a comparison needs it.
    from torcheer.diff.forms import TRANSFORMS, Form, register

    for name, transform in (transforms or {}).items():
        if transform not in TRANSFORMS:
            raise ComparisonError(
                f"register_layer_pair: {transform!r} for {name!r} is no transform. Take one of {', '.join(TRANSFORMS)}."
            )
    type_names = [one if isinstance(one, str) else one.__name__ for one in (layer, module)]
    kind = f"{type_names[0]} = {type_names[1]}"
    register("paddle", type_names[0], Form(kind, names or {}, transforms or {}))
    register("torch", type_names[1], Form(kind))


def side_of(model: Any, inp: Any, *, loss: Any = None, optimizer: Any = None, writes_params: bool = True) -> Side:
    """The side of a comparison that a model makes, by its framework. Without an input it cannot be run.

    writes_params: whether its parameters will be written, and so have to be put back.
    """
    if is_paddle(model):
        # Paddle is an extra.
        from torcheer.capture.paddle.side import PaddleSide, paddle_call

        return PaddleSide(model, paddle_call(model, inp), loss=loss, optimizer=optimizer)
    if is_onnx(model):
        return _onnx_side(model, inp)
    if type(model).__name__ == "ExportedProgram" and hasattr(model, "module"):
        model = model.module()
    # torch takes seconds to import.
    from torcheer.capture.torch.calls import torch_call
    from torcheer.capture.torch.side import TorchSide

    return TorchSide(model, torch_call(model, inp), loss=loss, optimizer=optimizer, writes_params=writes_params)


def is_onnx(model: Any) -> bool:
    """Is this the path of an ONNX file, or a loaded ONNX model?"""
    is_file = isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(".onnx")
    return is_file or type(model).__module__.startswith("onnx")


def _onnx_side(model: Any, inp: Any) -> Side:
    if isinstance(model, (str, os.PathLike)) and not os.path.isfile(model):
        raise ComparisonError(f"There is no file {os.fspath(model)}. Pass the path of an .onnx file, or a model.")
    try:
        # onnx and onnxruntime are an extra.
        from torcheer.capture.onnx.side import OnnxSide
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnx", "Comparing an ONNX model") from error
    return OnnxSide(model, inp)


__all__ = ["autodiff", "copy_weights", "register_layer_pair"]
