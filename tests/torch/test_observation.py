"""Observing changes nothing: hooks, memory, what the user does with the model afterwards."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from tests.torch.fidelity.compare import differences, module_state, random_state, seed_all
from tests.torch.recorded import small


def hooked(model: nn.Module, calls: list[Any]) -> nn.Module:
    """Every kind of hook on every module, each noting that it ran and what it was given."""

    def note(kind: str, address: str, result: Callable[..., Any] = lambda *args: None) -> Callable[..., Any]:
        def hook(module: nn.Module, *args: Any) -> Any:
            given = [item for arg in args for item in (arg if isinstance(arg, tuple) else (arg,))]
            shapes = [tuple(item.shape) for item in given if isinstance(item, Tensor)]
            calls.append((kind, address, type(module).__name__, shapes))
            return result(*args)

        return hook

    for address, module in model.named_modules():
        module.register_forward_pre_hook(note("pre", address))
        module.register_forward_pre_hook(note("pre kwargs", address), with_kwargs=True)
        module.register_forward_hook(note("post", address))
        module.register_forward_hook(note("doubles", address, lambda inputs, out: out * 2), prepend=True)
        module.register_forward_hook(note("always", address), always_call=True)
        module.register_full_backward_hook(note("backward", address))
        module.register_full_backward_pre_hook(note("backward pre", address))
    return model


def test_hooks_run_as_in_a_plain_run() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    plain_calls: list[Any] = []
    plain = hooked(small(), plain_calls)
    expected = plain(x)
    expected.sum().backward()
    recorded_calls: list[Any] = []
    recorded = hooked(small(), recorded_calls)
    history = tl.log_forward_pass(recorded, x)
    history.output.sum().backward()
    assert recorded_calls == plain_calls
    assert {call[0] for call in plain_calls} == {
        "pre", "pre kwargs", "post", "doubles", "always", "backward", "backward pre",
    }  # fmt: skip
    assert torch.equal(history.output, expected)
    assert differences(module_state(plain), module_state(recorded)) == []
    assert [op.name for op in history].count("mul") == 4


def test_what_a_hook_computes_belongs_to_the_module_it_is_on() -> None:
    model = small()
    model[0].register_forward_hook(lambda module, args, out: out * 5)
    history = tl.log_forward_pass(model, torch.randn(2, 3))
    assert [(op.name, op.module) for op in history][1:3] == [("linear", "0"), ("mul", "0")]
    assert history["relu_1"].parents == (history["mul_1"],)


def test_tensor_hooks_run() -> None:
    seen: list[str] = []

    class Hooked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y.register_hook(lambda grad: seen.append("y") or grad * 10)
            return y.sum()

    x = torch.ones(2, requires_grad=True)
    history = tl.log_forward_pass(Hooked(), x)
    history.output.backward()
    assert seen == ["y"]
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 20.0]


class Remembers(nn.Module):
    """Keeps weak references to what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid())
        self.seen: list[weakref.ref[Tensor]] = []
        self.alive: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        first = self.inner(x)
        self.seen.append(weakref.ref(first))
        view = first[0]
        self.seen.append(weakref.ref(view))
        second = view + 1
        del first, view
        self.alive = [reference() is not None for reference in self.seen]
        self.seen.append(weakref.ref(second))
        return second * 2


def test_metadata_alone_keeps_no_activation_alive() -> None:
    gc.disable()
    try:
        model = Remembers()
        with torch.no_grad():
            history = tl.log_forward_pass(model, torch.randn(2, 3), layers_to_save=None)
        assert model.alive == [False, False]
        assert [reference() is None for reference in model.seen] == [True] * 3
        assert len(history) == 7
        assert model.seen[-1]() is None
    finally:
        gc.enable()


def test_the_storage_of_an_activation_is_freed_during_the_run() -> None:
    """Without contents a capture needs no more memory than a plain run."""

    def num_addresses(layers_to_save: str) -> int:
        addresses: set[int] = set()

        class Deep(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                for _ in range(50):
                    x = x * 1.5
                    addresses.add(x.untyped_storage().data_ptr())
                return x

        with torch.no_grad():
            tl.log_forward_pass(Deep(), torch.randn(1000, 100), layers_to_save=layers_to_save)
        return len(addresses)

    assert num_addresses("none") < 25
    assert num_addresses("all") == 50


def test_a_dropped_history_frees_what_it_kept() -> None:
    model = Remembers()
    with torch.no_grad():
        history = tl.log_forward_pass(model, torch.randn(2, 3), layers_to_save="all")
    kept = weakref.ref(history["sigmoid_1"].tensor_contents.untyped_storage())
    owner = weakref.ref(history)
    gc.collect()
    assert owner() is not None
    del history
    gc.collect()
    assert owner() is None
    assert kept() is None


def test_a_model_can_be_copied_pickled_and_traced_after_a_capture() -> None:
    model = nn.Sequential(small(), nn.TransformerEncoderLayer(2, 1, 4, batch_first=True), nn.LSTM(2, 2)).eval()
    x = torch.randn(2, 3, 3)
    tl.log_forward_pass(model, x)
    expected = model(x)[0]
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(x)[0], expected)
    assert torch.equal(copy.deepcopy(model)(x)[0], expected)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    assert torch.fx.symbolic_trace(small())(torch.ones(1, 3)).shape == (1, 2)


def test_a_compiled_model_is_still_compiled_afterwards() -> None:
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(1)

        def run(*args: Any) -> Any:
            compiled.append(0)
            return graph.forward(*args)

        return run

    torch._dynamo.reset()
    plain = small()
    model = torch.compile(plain, backend=backend)
    x = torch.ones(1, 3)
    # Captured before it was ever compiled, and again afterwards.
    history = tl.log_forward_pass(model, x)
    assert [op.name for op in history][1:-1] == ["linear", "relu", "linear"]
    expected = plain(x)
    assert torch.equal(model(x), expected)
    assert compiled == [1, 0]
    tl.log_forward_pass(model, x)
    assert torch.equal(model(x), expected)
    assert compiled == [1, 0, 0]


def test_a_backward_of_the_users_own_works_after_a_capture() -> None:
    model, twin = small(), small()
    x = torch.randn(2, 3)
    history = tl.log_forward_pass(model, x)
    history.output.sum().backward()
    twin(x).sum().backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert mine.grad is not None
        assert torch.equal(mine.grad, theirs.grad)


def test_training_with_a_capture_in_every_step_is_plain_training() -> None:
    def train(step: Callable[[nn.Module, Tensor], Tensor]) -> dict[str, Tensor]:
        seed_all(0)
        model = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(inplace=True), nn.Linear(8, 1)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            step(model, torch.randn(6, 3)).pow(2).mean().backward()
            optimizer.step()
        return {**model.state_dict(), "random": torch.get_rng_state()}

    plain = train(lambda model, x: model(x))
    recorded = train(lambda model, x: tl.log_forward_pass(model, x, layers_to_save="all").output)
    assert differences(plain, recorded) == []


def test_reading_a_history_draws_no_random_numbers() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    history = tl.log_forward_pass(model, torch.randn(2, 3))
    before = random_state()
    str(history)
    for op in history:
        str(op)
    history._repr_html_()
    assert random_state() == before


def test_a_capture_inside_the_users_own_modes() -> None:
    """Modes that are active around a capture stay, and see what they would see of a plain run."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    model, x = small(), torch.randn(2, 3)
    with Functions() as functions, Dispatches() as dispatches:
        expected = model(x)
    seen = ([name for name in functions.names if not name.startswith("__")], list(dispatches.names))
    functions.names.clear()
    dispatches.names.clear()
    with functions, dispatches:
        history = tl.log_forward_pass(model, x, layers_to_save=None)
        output = history.output
    assert torch.equal(output, expected)
    found = [name for name in functions.names if not name.startswith("__")]
    assert [name for name in found if name in seen[0]][: len(seen[0])] == seen[0]
    assert dispatches.names == seen[1]
    assert [op.name for op in history][1:-1] == ["linear", "relu", "linear"]


def test_a_capture_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    history = tl.log_forward_pass(small(), torch.randn(2, 3, requires_grad=True))
    str(history)
    for op in history:
        str(op)
    assert list(recwarn) == []


def test_a_function_can_be_recorded() -> None:
    history = tl.log_forward_pass(lambda x: torch.relu(x) + 1, torch.ones(2))
    assert [op.name for op in history] == ["input", "relu", "add", "output"]


def test_a_module_compiled_in_place_is_recorded_as_a_call() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].compile(backend="eager")
    compiled = model[0].__dict__["_compiled_call_impl"]
    history = tl.log_forward_pass(model, torch.randn(2, 3))
    assert [call.module for call in history.record.calls] == [0, 1, 2]
    assert [note.code for note in history.record.diagnostics] == ["compiled-ran-eagerly"]
    assert model[0]._compiled_call_impl is compiled
    assert nn.Module.__dict__["_compiled_call_impl"] is None


def test_a_warning_of_pytorchs_python_code_names_the_line_of_the_user() -> None:
    def model(x: Tensor) -> Tensor:
        return nn.functional.mse_loss(nn.functional.softmax(x), torch.ones(3, 1))

    def warned(run: Any) -> list[tuple[str, int, str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(model, torch.ones(3, 3))
        return [(each.filename, each.lineno, str(each.message)) for each in caught]

    plain = warned(lambda model, x: model(x))
    assert [file for file, _, _ in plain] == [__file__, __file__]
    assert warned(tl.log_forward_pass) == plain
