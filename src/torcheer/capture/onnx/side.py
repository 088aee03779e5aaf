"""An ONNX model as one side of a comparison: the seam of ``diff/side.py``.

Every intermediate tensor is asked for as an output, with the optimizer of onnxruntime off, so that each node is there
as it stands in the file. Such a model is only compared forward: it has no autograd.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import onnx
import onnxruntime
from onnx import numpy_helper

from torcheer.capture.onnx.record import RunRecord
from torcheer.diff.arrays import Array, as_array
from torcheer.diff.side import Leaf, Recording, Weights
from torcheer.errors import ComparisonError

_SEVERITY = 3  # errors alone; that initializers are also outputs is no news


class OnnxSide:
    """One ONNX model with its inputs. The file, or the ``ModelProto`` given, is not changed."""

    framework = "onnx"

    def __init__(self, model: Any, given: Any) -> None:
        self.path = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
        self._proto = onnx.load(self.path) if self.path else onnx.ModelProto.FromString(model.SerializeToString())
        self.name = os.path.basename(self.path) or self._proto.graph.name or "onnx model"
        self._inputs = None if given is None else feeds(self._proto, given, self.name)
        self._outputs: list[Array] | None = None

    @property
    def output(self) -> Any:
        """What the last forward returned: one array, or a tuple of them."""
        outputs = self._outputs
        return outputs[0] if outputs is not None and len(outputs) == 1 else outputs and tuple(outputs)

    def leaves(self) -> list[Leaf]:
        """Nodes that read initializers, by the name that these share: ``fc1.weight`` and ``fc1.bias`` are ``fc1``'s."""
        shapes = {one.name: tuple(one.dims) for one in self._proto.graph.initializer}
        kinds = {name: node.op_type for node in reversed(self._proto.graph.node) for name in node.input}
        found: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, shape in shapes.items():
            address, _, own = name.rpartition(".")
            found.setdefault(address, {})[own] = shape
        return [
            Leaf(address, kinds.get(f"{address}.{next(iter(own))}".lstrip("."), "Node"), {}, own, trained=tuple(own))
            for address, own in found.items()
        ]

    def weights(self) -> dict[str, Array]:
        """Return copies of initializers by name."""
        return {one.name: as_array(numpy_helper.to_array(one)).copy() for one in self._proto.graph.initializer}

    def set_weights(self, weights: Weights) -> None:
        """Refuse: the weights of an exported model are part of it."""
        if weights:
            raise ComparisonError(
                "The weights of an ONNX model are not set. Give the other model its weights, or export it anew."
            )

    def record_forward(self) -> Recording:
        """Run the model and record every node."""
        if self._inputs is None:
            raise ComparisonError(f"{self.name} needs an input to run: compare(model, onnx_model, x).")
        graph = self._proto.graph
        wanted = [name for node in graph.node for name in node.output if name]
        initializers = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        found = dict(zip(wanted, self._run(wanted), strict=True))
        self._outputs = [as_array({**initializers, **self._inputs, **found}[one.name]) for one in graph.output]
        made = RunRecord(self._proto, self.name, self.path, onnxruntime.__version__)
        return made.build(self._inputs, initializers, found)

    def _run(self, wanted: list[str]) -> list[Any]:
        exposed = onnx.ModelProto()
        exposed.CopyFrom(self._proto)
        known = {one.name for one in exposed.graph.output}
        exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in known)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = _SEVERITY
        session = onnxruntime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results: list[Any] = session.run(wanted, self._inputs)
        return results

    def record_unfused(self) -> Recording:
        """Run the model again: its nodes are what they are."""
        return self.record_forward()

    def record_noisy(self, *, unfused: bool = False) -> Recording | None:  # noqa: ARG002 - the seam's
        """onnxruntime's kernels cannot be disturbed one by one."""
        return None

    def run_layer(self, address: str, inputs: list[Array]) -> list[Array]:
        """Refuse: a node has no call of its own."""
        raise ComparisonError(
            f"{address!r} of an ONNX model cannot be run by itself ({len(inputs)} inputs given). Run the whole model."
        )

    def backward(self, cotangents: list[Array] | None) -> dict[str, Array | None]:
        """Refuse: there is no autograd."""
        raise ComparisonError(
            f"An ONNX model has no backward pass ({len(cotangents or ())} gradients given). Compare it forward alone."
        )

    def step(self) -> None:
        """Refuse: it is not trained."""
        raise ComparisonError("An ONNX model is not trained here. Compare it forward alone.")

    def optimizer_state(self) -> dict[str, Array]:
        """Empty."""
        return {}

    def restore(self) -> None:
        """Nothing was changed."""


def feeds(proto: onnx.ModelProto, given: Any, name: str) -> dict[str, Any]:
    """The user's input as arrays by the names of the model's inputs."""
    # No room of capture loads numpy before it is needed.
    import numpy as np

    weights = {one.name for one in proto.graph.initializer}
    inputs = {one.name: one.type.tensor_type for one in proto.graph.input if one.name not in weights}
    if isinstance(given, Mapping):
        pairs = dict(given)
    else:
        positional = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(positional) > len(inputs):
            raise ComparisonError(
                f"{name} was given {len(positional)} inputs. Give {len(inputs)}: {', '.join(inputs)}."
            )
        pairs = dict(zip(inputs, positional, strict=False))
    if pairs.keys() != inputs.keys():
        missing, extra = inputs.keys() - pairs.keys(), pairs.keys() - inputs.keys()
        wrong = f"missing: {', '.join(sorted(missing))}" if missing else f"unknown: {', '.join(sorted(extra))}"
        raise ComparisonError(
            f"The input of {name} does not fit ({wrong}). Give its inputs by name: {', '.join(inputs)}."
        )
    arrays = {}
    for key, value in pairs.items():
        wanted = onnx.helper.tensor_dtype_to_np_dtype(inputs[key].elem_type)
        array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
        if array.dtype != wanted:
            raise ComparisonError(
                f"{name} takes {key} as {wanted}, and {array.dtype} was given. Export it for this dtype, or convert x."
            )
        arrays[key] = array
    return arrays
