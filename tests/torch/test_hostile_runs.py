"""Runs that are interrupted, that raise where nobody expects it, that run at once, and very many of them."""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from tests.torch.fidelity.checker import check_record
from tests.torch.fidelity.compare import differences, module_state, random_state, seed_all, torch_globals


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny operators on several threads wait for one another, on a machine that does other things, for ages."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


class Net(nn.Module):
    def __init__(self, depth: int = 3, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm, self.drop = nn.BatchNorm1d(width), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.drop(self.norm(layer(x))).relu_() + x
        return x


# -- interrupted -----------------------------------------------------------------------------------------


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Ctrl-C, at a moment of a timer's choosing."""
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def _no_collections() -> Iterator[None]:
    """Python loses what is raised in a callback of its garbage collector, and other test tools have such callbacks."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers of POSIX")
@pytest.mark.usefixtures("_no_collections")
def test_an_interrupt_at_any_moment_leaves_nothing_behind(tmp_path: Path) -> None:
    seed_all(0)
    model, x = Net(8), torch.randn(4, 6)
    tl.log_forward_pass(model, x)  # what is imported on first use is not part of the test
    before, state = torch_globals(), module_state(model)
    chance, num_interrupted = random.Random(5), 0
    old = signal.signal(signal.SIGALRM, _interrupt)
    try:
        for turn in range(300):
            place = tmp_path / f"run{turn}.tch"
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 6e-3))
                tl.log_forward_pass(model, x, layers_to_save="all", save_to=place if turn % 3 == 0 else None)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                num_interrupted += 1
                assert torch_globals() == before, f"turn {turn}: something of torch was left changed"
                left = [entry.name for entry in tmp_path.iterdir() if not entry.name.startswith("run")]
                assert left == [], f"turn {turn}: {left} was left behind"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert num_interrupted > 50
    after = module_state(model)
    assert {key: facts for key, facts in after.items() if isinstance(facts, dict)} == {
        key: facts for key, facts in state.items() if isinstance(facts, dict)
    }
    check_record(tl.log_forward_pass(model, x).record)


def test_ctrl_c_inside_forward_keeps_the_history_so_far() -> None:
    class Interrupted(Net):
        def forward(self, x: Tensor) -> Tensor:
            x = super().forward(x)
            signal.raise_signal(signal.SIGINT)
            return x

    before = torch_globals()
    with pytest.raises(KeyboardInterrupt) as caught:
        tl.log_forward_pass(Interrupted(), torch.randn(4, 6))
    history = caught.value.model_history  # type: ignore[attr-defined]
    assert len([op for op in history if op.name == "relu"]) == 3
    assert torch_globals() == before


# -- hooks that raise ------------------------------------------------------------------------------------


class HookError(Exception):
    """Raised by a hook of the test's."""


def _raises(*_: Any, **__: Any) -> Any:
    raise HookError


_HOOKS: dict[str, Any] = {
    "forward pre": lambda model: model.layers[1].register_forward_pre_hook(_raises),
    "forward": lambda model: model.layers[1].register_forward_hook(_raises),
    "forward always": lambda model: model.layers[1].register_forward_hook(_raises, always_call=True),
    "global": lambda model: nn.modules.module.register_module_forward_hook(_raises),
    "of the model": lambda model: model.register_forward_hook(_raises),
}


@pytest.mark.parametrize("kind", _HOOKS)
@pytest.mark.filterwarnings("ignore:module forward hook with ``always_call=True``")
def test_a_hook_that_raises(kind: str) -> None:
    model, x = Net(), torch.randn(4, 6)
    before = torch_globals()
    handle = _HOOKS[kind](model)
    try:
        with pytest.raises(HookError) as caught:
            tl.log_forward_pass(model, x)
    finally:
        handle.remove()
    history = caught.value.model_history  # type: ignore[attr-defined]
    check_record(history.record)
    assert str(history)
    assert torch_globals() == before
    tl.log_forward_pass(model, x)


@pytest.mark.parametrize("where", ["tensor", "param", "module", "node"])
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_a_backward_hook_that_raises(where: str) -> None:
    model, x = Net(), torch.randn(4, 6)
    before = torch_globals()
    history = tl.log_forward_pass(model, x)
    output = history.output
    if where == "tensor":
        output.register_hook(_raises)
    elif where == "param":
        next(model.parameters()).register_post_accumulate_grad_hook(_raises)
    elif where == "module":
        model.layers[0].register_full_backward_hook(_raises)
        history = tl.log_forward_pass(model, x)
        output = history.output
    else:
        output.grad_fn.register_hook(_raises)
    with pytest.raises(HookError):
        history.log_backward(output.sum())
    check_record(history.record)
    assert str(history)
    assert torch_globals() == before


# -- at once ---------------------------------------------------------------------------------------------


def test_four_threads_record_at_once(tmp_path: Path) -> None:
    """Each record is that of its own thread alone, as recorded alone, and each file opens."""
    nets = [Net(depth, 4 + depth) for depth in range(1, 5)]
    inputs = [torch.randn(4, 4 + depth) for depth in range(1, 5)]
    for net in nets:
        net.eval()
    alone = [tl.log_forward_pass(net, x) for net, x in zip(nets, inputs, strict=True)]
    before, errors = torch_globals(), []
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            for turn in range(15):
                barrier.wait(60)
                place = tmp_path / f"{number}-{turn}.tch" if turn % 5 == 0 else None
                history = tl.log_forward_pass(nets[number], inputs[number], save_to=place)
                assert history.op_labels == alone[number].op_labels
                assert torch.equal(history.output, alone[number].output)
                check_record(history.record)
                if place is not None:
                    assert tl.load(place).record == history.record
                elif turn % 2:
                    history.log_backward(history.output.sum())
                    assert history.record.run.num_backward == 1
        except BaseException as error:
            errors.append(error)
            barrier.abort()
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert torch_globals() == before
    assert differences(module_state(nets[0])[""], module_state(Net(1, 5).eval())[""], "model") == []


# -- very many -------------------------------------------------------------------------------------------


def _num_objects() -> Counter[str]:
    gc.collect()
    return Counter(type(one).__qualname__ for one in gc.get_objects())


def test_a_thousand_captures_leave_nothing() -> None:
    model, x = Net(2), torch.randn(4, 6)

    def capture(num: int) -> None:
        for turn in range(num):
            history = tl.log_forward_pass(model, x, layers_to_save="all" if turn % 2 else "none")
            if turn % 10 == 1:
                assert len(history) > 5
                history.log_backward(history.output.sum())
                model.zero_grad()

    capture(60)
    _num_objects()  # counting fills a cache of isinstance's
    before, blocks = _num_objects(), sys.getallocatedblocks()
    capture(1000)
    grown = _num_objects() - before
    # Nothing that grows with the captures; a few caches may fill up.
    assert {name: count for name, count in grown.items() if count > 20} == {}
    assert sys.getallocatedblocks() - blocks < 5000


def test_a_history_that_is_let_go_lets_go_of_its_tensors() -> None:
    model, x = Net(2), torch.randn(4, 6)
    history = tl.log_forward_pass(model, x)
    kept = weakref.ref(history["linear_1"].tensor_contents)
    output = weakref.ref(history.output)
    del history
    gc.collect()
    assert kept() is None
    assert output() is None


def test_random_numbers_are_the_same_after_many_captures() -> None:
    model, x = Net(2), torch.randn(4, 6)
    seed_all(7)
    for _ in range(20):
        model(x)
    plain = random_state()
    seed_all(7)
    for _ in range(20):
        tl.log_forward_pass(model, x)
    assert random_state() == plain
