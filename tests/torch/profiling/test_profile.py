"""tl.profile on real models: sums agree, and the model is as before."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torcheer as tl
from examples.models import ResidualNet, TinyGPT
from torcheer.capture.torch.timed import Matcher
from torcheer.record.model import Op, Record, Run


@pytest.fixture(scope="module")
def report() -> Any:
    torch.manual_seed(0)
    return tl.profile(ResidualNet(), torch.rand(2, 3, 16, 16), backward=True, repeats=2)


ADDITIVE = ("forward_ns", "backward_ns", "flops_forward", "flops_backward", "bytes_read", "num_ops", "num_aten")


def test_children_and_own_add_up_to_the_parent(report: Any) -> None:
    for row in report.rows:
        for name in ADDITIVE:
            parts = [row.own, *(report.rows[child].total for child in row.children)]
            assert getattr(row.total, name) == sum(getattr(part, name) or 0 for part in parts), (row.address, name)


def test_own_params_add_up_to_the_models(report: Any) -> None:
    assert sum(row.num_own_params for row in report.rows) == report.rows[0].num_params == 2682


def test_memory_of_a_call_holds_together(report: Any) -> None:
    for call in report.calls:
        memory = call.memory
        assert memory.peak >= memory.exit >= 0
        assert memory.peak >= memory.entry
        assert memory.extra_forward >= 0
    root = report.calls[0].memory
    assert root.entry == 0
    assert report.totals.peak_bytes >= root.peak
    above_start = {"activation", "temporary", "gradient", "optimizer"}
    at_peak = report.totals.at_peak
    assert sum(size for role, size in at_peak.items() if role in above_start) == report.totals.peak_bytes


def test_layers_of_the_timeline_add_up_to_what_is_held(report: Any) -> None:
    held: Counter[str] = Counter()
    by_module: Counter[int | None] = Counter()
    for point in report.timeline:
        held[point.role] += point.delta_bytes
        by_module[point.taker] += point.delta_bytes
        assert sum(held.values()) == sum(by_module.values()) == point.held_bytes
        assert min(held.values()) >= 0
        assert min(by_module.values()) >= 0
        if point.held_bytes == report.totals.peak_bytes:
            now = {**report.memory_before, **{role: size for role, size in held.items() if size}}
            assert now == report.totals.at_peak
            break
    assert len(by_module) > 5


def test_gradient_bytes_are_those_of_the_params(report: Any) -> None:
    assert report.rows[0].gradient_bytes == report.rows[0].params_bytes


def test_json_is_json(report: Any) -> None:
    data = json.loads(report.to_json())
    assert [row["address"] for row in data["modules"]] == [row.address for row in report.rows]
    assert json.dumps(report.to_chrome_trace(), allow_nan=False)


def test_table_has_a_line_per_module(report: Any) -> None:
    lines = str(report).splitlines()
    tree = lines[2 : 2 + len(report.rows)]
    assert tree[0].startswith("ResidualNet")
    assert len(tree) == len(report.rows)
    assert "params  2,682" in str(report)


def state(model: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in (*model.parameters(), *model.buffers())]


def test_model_gradients_and_random_numbers_are_as_before() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    x = torch.rand(8, 4)
    model(x).sum().backward()
    before, gradients = state(model), [param.grad for param in model.parameters()]
    values = [gradient.clone() for gradient in gradients if gradient is not None]
    random = torch.get_rng_state()
    tl.profile(model, x, backward=True, repeats=2)
    assert all(torch.equal(one, other) for one, other in zip(before, state(model), strict=True))
    assert all(param.grad is gradient for param, gradient in zip(model.parameters(), gradients, strict=True))
    assert all(
        torch.equal(one, other)
        for one, other in zip(values, [grad for grad in gradients if grad is not None], strict=True)
    )
    assert torch.equal(random, torch.get_rng_state())


def test_without_grad_it_measures_the_forward_only() -> None:
    with torch.no_grad():
        report = tl.profile(TinyGPT(), torch.randint(0, 50, (1, 16)), repeats=1)
    assert report.totals.figures.backward_ns is None
    assert report.totals.held_bytes == 0
    assert report.totals.figures.flops_backward == 0


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def test_a_model_that_raises_leaves_a_partial_report() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        tl.profile(Fails(), torch.rand(2, 4))
    report = caught.value.report  # type: ignore[attr-defined]
    assert report.is_partial
    assert report["first"].total.flops_forward == 2 * 2 * 4 * 4
    assert "the run ended in RuntimeError" in str(report)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backward": True, "loss": lambda out: out}, r"loss must return a tensor of one number.*shape \(2, 4\)"),
        ({"backward": True, "loss": lambda out: out.detach().sum()}, "needs a loss that requires grad"),
        ({"measure": "speed"}, "measure is 'speed'. It takes any of 'time', 'memory', 'flops', 'nan'"),
        ({"measure": ()}, "measure is empty"),
        ({"execution": "dry"}, "execution is 'dry'. It takes one of 'real', 'fake'"),
        ({"clock": "sun"}, "clock is 'sun'. It takes one of 'wall', 'thread'"),
        ({"repeats": -1}, "give 0 or more"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tl.TorcheerError, match=message):
        tl.profile(nn.Linear(4, 4), torch.rand(2, 4), **options)


def test_unknown_columns_and_modules_have_near_misses(report: Any) -> None:
    with pytest.raises(tl.TorcheerError, match=r"no column 'forwrd'. Did you mean 'forward'"):
        report.table(columns=("forwrd",))
    with pytest.raises(tl.TorcheerError, match=r"no module 'blocks.0.conv'. Did you mean 'blocks.0.conv2'"):
        report["blocks.0.conv"]


class MakesItsLoss(nn.Module):
    """As transformers does: a module of its own in every call, which is another object each time."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.MSELoss()(self.linear(x), x)


def test_modules_that_a_forward_makes_are_the_same_path() -> None:
    report = tl.profile(MakesItsLoss(), torch.rand(2, 4), backward=True, repeats=2)
    assert report.notes == []
    assert report.record.run.num_repeats == 2


def test_parts_of_a_report_read_as_text(report: Any) -> None:
    assert re.match(
        r"^stem \(Conv2d\): 1 call, 224 params, forward .*, 221.2 kFLOP forward, .*needed", str(report["stem"])
    )
    assert re.match(r"^conv2d_1_1:1 at .*: forward .*, 221.2 kFLOP forward", str(report.ops[0]))
    born = tl.profile(nn.Threshold(0.0, float("nan")), torch.zeros(2), measure="nan")
    assert str(born.alarms[0]) == born.alarms[0].text


def test_a_list_of_modules_is_sorted_by_what_is_in_it() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)
            self.blocks = nn.ModuleList([nn.Linear(400, 4), nn.Linear(4, 400)])

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks[1](self.head(self.blocks[0](x)))

    table = tl.profile(Net(), torch.rand(8, 400), measure="memory").table(sort="needed", columns=("needed",))
    places = [table.index(name) for name in ("blocks", "─ 1", "─ 0", "head")]
    assert places == sorted(places), table


def test_what_recording_left_in_the_forward_is_taken_off_each_op_and_call_alike() -> None:
    matcher = Matcher.__new__(Matcher)
    op = {"kind": "op", "name": "f", "function": "f", "site": None}
    matcher.record = Record(Run("Net"), ops=[Op(index, call=call, **op) for index, call in enumerate((1, 1, 1, 2))])
    times = {0: 30, 1: 900, 2: 500}
    run = Counter({("call", call, "forward"): spent for call, spent in times.items()})
    run.update({("op", op, "forward"): spent for op, spent in enumerate((300, 300, 300, 400))})
    run.update({("call", 2, "backward"): 80, ("run", 0, "all"): 1510})
    runs = [run, Counter(run)]
    matcher.bring_to(runs, 1100)
    # Call 0 has but 30 to give, where each op and call owes 50.
    assert runs[0] == runs[1]
    assert run["run", 0, "all"] == 1100 + 80
    assert run["call", 0, "forward"] == 0
    assert (run["call", 1, "forward"], run["op", 0, "forward"]) == (700, 233)
    assert (run["call", 2, "forward"], run["op", 3, "forward"], run["call", 2, "backward"]) == (400, 320, 80)
