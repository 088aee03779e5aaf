"""A PyTorch model as one side of a comparison: the seam of ``diff/side.py``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch

from torcheer.capture.torch.again import call_again
from torcheer.capture.torch.fine import FineSession
from torcheer.capture.torch.fine import unfused as run_unfused
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.noisy import NoisySession
from torcheer.capture.torch.state import RunState, copy_of, same, set_host_random_state, set_random_state
from torcheer.capture.torch.structure import own_tensors, snapshot
from torcheer.capture.torch.tape import named_tensors
from torcheer.diff.arrays import Array, as_array
from torcheer.diff.forms import STATISTICS
from torcheer.diff.side import Leaf, Recording, Weights, check_loss, check_optimizer
from torcheer.errors import ComparisonError
from torcheer.record.model import Op

Tensor = torch.Tensor
Loss = Callable[[Any], Tensor]
LEARNING_RATE = 1e-2  # of the gradient descent that stands in for an optimizer


class TorchSide:
    """One PyTorch model with its inputs. Everything it changes is put back by ``restore``."""

    framework = "torch"

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: Inputs,
        *,
        loss: Loss | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        writes_params: bool = True,
    ) -> None:
        check_optimizer(optimizer, torch.optim.Optimizer, self.framework)
        self.model = model
        self.inputs = inputs
        self.loss = loss
        self.optimizer = optimizer
        self.session: FineSession | None = None
        self._state = RunState(model, inputs, with_params=writes_params)
        copies = {id(tensor): before for tensor, before in self._state.tensors}
        self._given = [(tensor, copies[id(tensor)]) for _, tensor in inputs.tensors() if id(tensor) in copies]
        self._optimizer_state = None if optimizer is None else _state_copy(optimizer.state_dict())

    def leaves(self) -> list[Leaf]:
        """Leaf modules, and modules with tensors of their own, in the order of their definition."""
        return leaves_of(self.model)

    def weights(self) -> dict[str, Array]:
        """Return copies of params and buffers by address."""
        return {address: as_array(tensor).copy() for address, tensor in own_tensors(self.model)}

    def set_weights(self, weights: Weights) -> None:
        """Write params and buffers in place."""
        with torch.no_grad():
            for address, tensor in own_tensors(self.model):
                if address in weights:
                    tensor.copy_(torch.from_numpy(weights[address].copy()).reshape(tensor.shape))

    def record_forward(self) -> Recording:
        """Run the model and record it."""
        self.model.zero_grad(set_to_none=True)
        set_random_state(self._state.random)
        set_host_random_state(self._state.host_random)
        self._refresh_inputs()
        self.session = FineSession(self.model, self.inputs)
        self.session.run()
        return Recording(self.session.record(), self.session.payloads)

    @property
    def output(self) -> Any:
        """What the last forward returned."""
        return None if self.session is None else self.session.output

    def paths_of(self, picked: Any) -> tuple[str, ...] | None:
        """Where in the last output the picked tensors are; None where one of them is not there as it was returned."""
        places = {id(tensor): path for path, tensor in named_tensors(self.output)}
        found = [places.get(id(tensor)) for _, tensor in named_tensors(picked)]
        return None if not found or None in found else tuple(path for path in found if path is not None)

    def record_unfused(self) -> Recording:
        """Run the model from where it started, without fused kernels."""
        with run_unfused():
            return self._record_again(FineSession)

    def record_noisy(self, *, unfused: bool = False) -> Recording:
        """Run the model from where it started, with every result off by a rounding error."""
        with run_unfused() if unfused else nullcontext():
            return self._record_again(NoisySession)

    def _record_again(self, kind: type[FineSession]) -> Recording:
        self._state.restore()
        self._refresh_inputs()
        session = kind(self.model, self.inputs)
        session.run()
        session.let_go()
        return Recording(session.record(), session.payloads)

    def _refresh_inputs(self) -> None:
        """Take copies of the inputs as they were, where a run (the other model's, too) has written into them.

        The tensors written to stay as they are: a backward pass may need them.
        """
        if all(same(tensor.detach(), before) for tensor, before in self._given):
            return
        memo: dict[int, Any] = {}
        fresh = []
        for tensor, before in self._given:
            copied = memo[id(tensor)] = copy_of(before).requires_grad_(tensor.requires_grad)
            fresh.append((copied, before))
        self.inputs, self._given = copy.deepcopy(self.inputs, memo), fresh

    def run_layer(self, address: str, inputs: list[Array]) -> list[Array]:
        """Run one module by itself."""
        with torch.no_grad():
            given = [torch.from_numpy(array.copy()).to(self._device()) for array in inputs]
            return [as_array(tensor) for _, tensor in named_tensors(self.model.get_submodule(address)(*given))]

    def replay(self, call: Op, contents: Mapping[int, Array]) -> list[Array] | None:
        """Make one recorded call again, on these contents."""
        return call_again(call, contents, self._device())

    def _device(self) -> torch.device:
        anchor = next(self.model.parameters(), None)
        return anchor.device if anchor is not None else torch.device("cpu")

    def backward(self, cotangents: list[Array] | None) -> dict[str, Array | None]:
        """Run backward from the loss, or from the outputs with the given gradients."""
        session = self.session
        assert session is not None, "record_forward comes first"
        self.model.zero_grad(set_to_none=True)  # the other side may be the same model
        with session.watching_backward():
            if self.loss is not None:
                check_loss(self.loss(session.output), Tensor, self.framework).backward()
            else:
                outputs = [t for _, t in named_tensors(session.output) if t.is_floating_point() or t.is_complex()]
                given = [torch.from_numpy(array).to(t) for t, array in zip(outputs, cotangents or (), strict=True)]
                wanted = [(t, g) for t, g in zip(outputs, given, strict=True) if t.requires_grad]
                if wanted:
                    torch.autograd.backward([t for t, _ in wanted], [g for _, g in wanted])
        return {
            address: None if param.grad is None else as_array(param.grad).copy()
            for address, param in self.model.named_parameters()
            if param.requires_grad
        }

    def step(self) -> None:
        """One step of the optimizer, or of plain gradient descent."""
        if self.optimizer is not None:
            self.optimizer.step()
            return
        with torch.no_grad():
            for param in self.model.parameters():
                if param.grad is not None:
                    param.sub_(param.grad, alpha=LEARNING_RATE)

    def optimizer_state(self) -> dict[str, Array]:
        """Return the optimizer's state by parameter and name."""
        if self.optimizer is None:
            return {}
        names = {id(param): address for address, param in self.model.named_parameters()}
        return {
            f"{names[id(param)]}/{name}": as_array(tensor).copy()
            for param, state in self.optimizer.state.items()
            if id(param) in names
            for name, tensor in state.items()
            if isinstance(tensor, Tensor)
        }

    def restore(self) -> None:
        """Put weights, buffers, gradients, random state and the optimizer's state back."""
        self._state.restore()
        if self.optimizer is not None and self._optimizer_state is not None:
            self.optimizer.load_state_dict(self._optimizer_state)
        self.session = None


def leaves_of(model: torch.nn.Module) -> list[Leaf]:
    """Leaf modules, and modules with tensors of their own, as data."""
    if not isinstance(model, torch.nn.Module):
        raise ComparisonError(
            f"A {type(model).__name__} was given where a model is expected. Pass a torch.nn.Module on each side."
        )
    structure = snapshot(model)
    addresses = {id(module): address for address, module in model.named_modules()}
    own: dict[int, list[tuple[str, str, Tensor]]] = {}
    claimed: set[int] = set()
    for position, name, kind, tensor in structure.tensors:
        if isinstance(tensor, Tensor) and id(tensor) not in claimed and not torch.nn.parameter.is_lazy(tensor):
            claimed.add(id(tensor))
            own.setdefault(position, []).append((name, kind, tensor))
    return [
        Leaf(
            addresses.get(id(module), ""),
            str(getattr(module, "original_name", None) or type(module).__name__),
            _attributes(module),
            {name: tuple(tensor.shape) for name, _, tensor in own.get(position, [])},
            repr(module) if not any(module.children()) else type(module).__name__,
            tuple(name for name, kind, _ in own.get(position, []) if kind == "param"),
            tuple(name for name, kind, _ in own.get(position, []) if kind == "buffer" and name not in STATISTICS),
        )
        for position, (_, _, module) in enumerate(structure.modules)
        if own.get(position) or not any(True for _ in module.children())
    ]


def _attributes(module: torch.nn.Module) -> dict[str, Any]:
    return {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_")
        and key != "training"
        and isinstance(value, (bool, int, float, str, tuple, type(None)))
    }


def _state_copy(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: _state_copy(item) for key, item in state.items()}
    if isinstance(state, list):
        return [_state_copy(item) for item in state]
    return state
