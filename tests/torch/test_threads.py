"""Captures beside other threads, and in several at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

import torcheer as tl
from tests.torch.fidelity.checker import check_record
from tests.torch.fidelity.compare import torch_globals
from tests.torch.recorded import small


def test_a_capture_does_not_see_other_threads() -> None:
    """Another thread works with a model of its own, all the time."""
    stop = threading.Event()
    ran: list[int] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            model = nn.Sequential(nn.Linear(5, 5), nn.Tanh())
            encoder = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True).eval()
            expected = model(torch.ones(1, 5))
            while not stop.is_set():
                assert torch.equal(model(torch.ones(1, 5)), expected)
                encoder(torch.ones(1, 2, 4))
                ran.append(1)
        except BaseException as error:  # noqa: BLE001 - raised again by the assertion in the main thread
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        model = small()
        expected = tl.log_forward_pass(model, torch.ones(1, 3)).op_labels
        while len(ran) < 5 and not problems:
            history = tl.log_forward_pass(model, torch.ones(1, 3))
            assert history.op_labels == expected
            assert history.diagnostics == ()
    finally:
        stop.set()
        thread.join()
    assert problems == []


def test_two_captures_in_two_threads() -> None:
    """Each sees its own model and nothing else; afterwards torch is as it was."""
    before = torch_globals()
    barrier = threading.Barrier(2, timeout=60)

    class Meets(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = width
            self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(20))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.inner:
                barrier.wait()
                x = layer(x).relu() if self.width == 3 else layer(x).tanh()
            return x

    models = [Meets(3), Meets(4)]

    def capture(model: Meets) -> Any:
        return tl.log_forward_pass(model, torch.ones(1, model.width), layers_to_save="all")

    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            histories = list(pool.map(capture, models))
            for model, name, history in zip(models, ("relu", "tanh"), histories, strict=True):
                check_record(history.record)
                names = [op.name for op in history]
                assert names == ["input", *["linear", name] * 20, "output"]
                assert {op.shape for op in history} == {(1, model.width)}
                assert history.diagnostics == ()
    assert torch_globals() == before


def test_a_capture_that_ends_while_another_runs_disturbs_nothing() -> None:
    inside, leave = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = x + 1
            inside.set()
            assert leave.wait(60)
            return self.attention(x, x, x)[0] * 2

    before = torch_globals()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(tl.log_forward_pass, Waits(), torch.ones(2, 1, 4))
        assert inside.wait(60)
        for _ in range(3):
            tl.log_forward_pass(small(), torch.ones(1, 3))
        leave.set()
        names = [op.name for op in waiting.result()]
    assert torch_globals() == before
    alone = [op.name for op in tl.log_forward_pass(Waits(), torch.ones(2, 1, 4))]
    assert names == alone
    assert "bmm" in names or "baddbmm" in names
