"""A Paddle layer as one side of a comparison: the seam of ``diff/side.py``."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import paddle

from torcheer.capture.arguments import Arguments, tensors_in
from torcheer.capture.paddle.forms import ABSORBED
from torcheer.capture.paddle.private import OptimizerState, copied, has_contents
from torcheer.capture.paddle.session import PaddleSession, arrange_call
from torcheer.capture.paddle.tensors import is_tensor, keep
from torcheer.diff.arrays import Array, as_array, for_model
from torcheer.diff.forms import STATISTICS
from torcheer.diff.side import Leaf, Recording, Weights, check_loss, check_optimizer
from torcheer.errors import ComparisonError

Loss = Callable[[Any], Any]
LEARNING_RATE = 1e-2  # of the gradient descent that stands in for an optimizer


class PaddleSide:
    """One Paddle layer with its inputs. Everything it changes is put back by ``restore``."""

    framework = "paddle"

    def __init__(self, model: Any, inputs: Arguments, *, loss: Loss | None = None, optimizer: Any = None) -> None:
        check_optimizer(optimizer, paddle.optimizer.Optimizer, self.framework)
        self.model = model
        self.inputs = inputs
        self.loss = loss
        self.optimizer = optimizer
        self.session: PaddleSession | None = None
        self._before = _State(model, optimizer)

    def leaves(self) -> list[Leaf]:
        """Layers with tensors of their own, or without children, in the order of their definition."""
        return leaves_of(self.model)

    def weights(self) -> dict[str, Array]:
        """Return copies of parameters and buffers by address."""
        return {address: as_array(tensor).copy() for _, _, address, tensor in own_tensors(self.model)}

    def set_weights(self, weights: Weights) -> None:
        """Write parameters and buffers in place."""
        for _, _, address, tensor in own_tensors(self.model):
            if address in weights:
                write(tensor, weights[address])

    def record_forward(self) -> Recording:
        """Run the model and record it, parameters included."""
        self._clear_gradients()
        session = self.session = PaddleSession(self.model, _fresh(self.inputs), "all")
        for index, tensor in session.recorder.structure.param_tensors():
            keep(session.store, f"param.{index}", tensor)
        session.run()
        record = session.record()
        for value in record.values:
            name = f"param.{value.param}"
            if value.param is not None and value.producer is None and name in session.store:
                record.saved.setdefault(value.index, name)
        return Recording(record, session.payloads)

    @property
    def output(self) -> Any:
        """What the last forward returned."""
        return None if self.session is None else self.session.output

    def record_unfused(self) -> Recording:
        """Run the model again. Paddle has no switch for its fused kernels."""
        self.restore()
        return self.record_forward()

    def record_noisy(self, *, unfused: bool = False) -> Recording | None:  # noqa: ARG002 - the seam's
        """Paddle's kernels cannot be disturbed one by one."""
        return None

    def run_layer(self, address: str, inputs: list[Array]) -> list[Array]:
        """Run one layer by itself."""
        layer = next(layer for name, layer in _layers(self.model) if name == address)
        with paddle.no_grad():
            out = layer(*(as_tensors(array) for array in inputs))
        return [as_array(tensor) for _, tensor in tensors_in(out, is_tensor)]

    def backward(self, cotangents: list[Array] | None) -> dict[str, Array | None]:
        """Run backward from the loss, or from the outputs with the given gradients."""
        session = self.session
        assert session is not None, "record_forward comes first"
        self._clear_gradients()  # the other side may be the same model
        with session.watching_backward():
            self._run_backward(session, cotangents)
        return {
            address: None if tensor.grad is None else as_array(tensor.grad).copy()
            for _, _, address, tensor in own_tensors(self.model)
            if not tensor.stop_gradient
        }

    def _clear_gradients(self) -> None:
        for _, _, _, tensor in own_tensors(self.model):
            tensor.clear_gradient(False)

    def _run_backward(self, session: PaddleSession, cotangents: list[Array] | None) -> None:
        try:
            if self.loss is not None:
                check_loss(self.loss(session.output), paddle.Tensor, self.framework).backward()
            else:
                outputs = [tensor for _, tensor in tensors_in(session.output, is_tensor) if _is_float(tensor)]
                given = [_like(array, tensor) for tensor, array in zip(outputs, cotangents or (), strict=True)]
                wanted = [(t, g) for t, g in zip(outputs, given, strict=True) if not t.stop_gradient]
                if wanted:
                    paddle.autograd.backward([t for t, _ in wanted], [g for _, g in wanted])
        except RuntimeError as error:
            if "holds no memory" in str(error) and any(op.name == "rnn" for op in session.record().ops):
                raise ComparisonError(
                    "Paddle cannot run backward through a recurrent layer in eval mode. Put the model into train mode, "
                    "with its dropout at 0, or compare the forward pass alone: options={'diff_phase': 'forward'}."
                ) from error
            raise

    def step(self) -> None:
        """One step of the optimizer, or of plain gradient descent."""
        if self.optimizer is not None:
            self.optimizer.step()
            return
        for _, _, _, tensor in own_tensors(self.model):
            if not tensor.stop_gradient and tensor.grad is not None:
                write(tensor, as_array(tensor) - LEARNING_RATE * as_array(tensor.grad))

    def optimizer_state(self) -> dict[str, Array]:
        """Return the optimizer's state by parameter and name."""
        if self.optimizer is None:
            return {}
        found = {}
        for _, _, address, tensor in own_tensors(self.model):
            for name, state in self.optimizer.state_dict().items():
                if isinstance(state, paddle.Tensor) and name.startswith(f"{tensor.name}_"):
                    found[f"{address}/{name.removeprefix(tensor.name + '_')}"] = as_array(state).copy()
        return found

    def restore(self) -> None:
        """Put weights, buffers, gradients, modes, random state and the optimizer's state back."""
        self._before.restore()
        self.session = None


def leaves_of(model: Any) -> list[Leaf]:
    """Layers with tensors of their own, or without children, as data."""
    if not isinstance(model, paddle.nn.Layer):
        raise ComparisonError(
            f"A {type(model).__name__} was given where a model is expected. Pass a paddle.nn.Layer or torch.nn.Module."
        )
    own: dict[str, list[tuple[str, Any]]] = {}
    for layer_address, name, _, tensor in own_tensors(model):
        own.setdefault(layer_address, []).append((name, tensor))
    leaves, absorbed = [], set()
    for address, layer in _layers(model):
        if address in absorbed:
            continue
        tensors = list(own.get(address, ()))
        for child in ABSORBED.get(type(layer).__name__, ()):
            below = f"{address}.{child}" if address else child
            absorbed.add(below)
            tensors += [(f"{child}.{name}", tensor) for name, tensor in own.get(below, ())]
        if tensors or not layer._sub_layers:
            leaves.append(_leaf(address, layer, tensors))
    return leaves


def own_tensors(model: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Every parameter and buffer once: the address of its layer, its name there, its own address, the tensor."""
    claimed: set[int] = set()
    for address, layer in _layers(model):
        for name, tensor in (*layer._parameters.items(), *layer._buffers.items()):
            if isinstance(tensor, paddle.Tensor) and has_contents(tensor) and id(tensor) not in claimed:
                claimed.add(id(tensor))
                yield address, name, f"{address}.{name}" if address else name, tensor


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Layers by address, each once, as the record has them."""
    seen: set[int] = set()
    pending = [("", model)]
    while pending:
        address, layer = pending.pop()
        if layer is None or id(layer) in seen:
            continue
        seen.add(id(layer))
        yield address, layer
        prefix = f"{address}." if address else ""
        pending += [(prefix + name, child) for name, child in layer._sub_layers.items()][::-1]


def _leaf(address: str, layer: Any, tensors: list[tuple[str, Any]]) -> Leaf:
    return Leaf(
        address,
        type(layer).__name__,
        {
            name: value
            for name, value in vars(layer).items()
            if not name.startswith("_") and name != "training" and isinstance(value, (bool, int, float, str, tuple))
        },
        {name: tuple(int(size) for size in tensor.shape) for name, tensor in tensors},
        repr(layer) if not layer._sub_layers else type(layer).__name__,
        tuple(name for name, tensor in tensors if not tensor.stop_gradient),
        tuple(name for name, _ in tensors if name in layer._buffers and name not in STATISTICS),
    )


def write(tensor: Any, array: Array) -> None:
    """Write numbers into a tensor's memory, outside every graph."""
    with paddle.no_grad():
        fresh = paddle.to_tensor(array.reshape(tensor.shape), place=tensor.place).astype(tensor.dtype)
        paddle.assign(fresh, output=tensor)


def paddle_call(model: Any, given: Any) -> Arguments:
    """The call of ``model`` that this input makes: arrays become its tensors; None: it is not to be called."""
    if not isinstance(model, paddle.nn.Layer):
        raise ComparisonError(f"A {type(model).__name__} was given where a model is expected. Pass a paddle.nn.Layer.")
    if given is None:
        return Arguments((), {})
    return arrange_call(model, (as_tensors(given, list(model.parameters())),), {})


def as_tensors(given: Any, params: Sequence[Any] = ()) -> Any:
    """The same structure with arrays as Paddle's tensors, such as a model with these parameters takes."""
    if isinstance(given, paddle.Tensor):
        return given
    if hasattr(given, "__array_interface__") or hasattr(given, "__array__"):
        array = for_model(given, [param.dtype for param in params])
        return paddle.to_tensor(array, place=params[0].place if params else None)
    if isinstance(given, (tuple, list)) and not hasattr(given, "_fields"):
        return type(given)(as_tensors(item, params) for item in given)
    if isinstance(given, dict):
        return {key: as_tensors(item, params) for key, item in given.items()}
    return given


def _fresh(inputs: Arguments) -> Arguments:
    """The inputs in memory of their own, and followed by autograd.

    Some layers of Paddle's cannot run backward without a gradient for their input: InstanceNorm raises, and PReLU ends
    the process. A copy that an op has made may be written in place all the same.
    """

    def fresh(given: Any) -> Any:
        if isinstance(given, paddle.Tensor):
            if not _is_float(given):
                return copied(given)
            leaf = given.detach()
            leaf.stop_gradient = False
            return paddle.assign(leaf)
        if isinstance(given, (tuple, list)) and not hasattr(given, "_fields"):
            return type(given)(fresh(item) for item in given)
        return {key: fresh(item) for key, item in given.items()} if isinstance(given, dict) else given

    return Arguments(fresh(inputs.args), fresh(inputs.kwargs), inputs.names)


def _is_float(tensor: Any) -> bool:
    return bool(tensor.is_floating_point()) or bool(tensor.is_complex())


def _like(array: Array, tensor: Any) -> Any:
    return paddle.to_tensor(array, place=tensor.place).astype(tensor.dtype)


class _State:
    """What a comparison may change in a model and around it."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.random = paddle.get_rng_state()
        self.host_random = random.getstate(), sys.modules["numpy"].random.get_state()
        # A gradient is copied: clearing it lets go of its memory.
        self.tensors = [
            (tensor, copied(tensor), None if tensor.grad is None else copied(tensor.grad))
            for _, _, _, tensor in own_tensors(model)
        ]
        self.modes = [(layer, layer.training) for _, layer in _layers(model)]
        self.optimizer = None if optimizer is None else OptimizerState(optimizer)

    def restore(self) -> None:
        """Put everything back."""
        for tensor, before, gradient in self.tensors:
            if tensor.numpy().tobytes() != before.numpy().tobytes():
                with paddle.no_grad():
                    paddle.assign(before, output=tensor)
            tensor.clear_gradient(False)
            if gradient is not None:
                tensor.grad = gradient
        for layer, training in self.modes:
            layer.training = training
        paddle.set_rng_state(self.random)
        random.setstate(self.host_random[0])
        sys.modules["numpy"].random.set_state(self.host_random[1])
        if self.optimizer is not None:
            self.optimizer.restore()
