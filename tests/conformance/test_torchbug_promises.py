"""What TorchBug promises, statement by statement, and what it was seen to miss.

https://github.com/Neonkraft/TorchBug
"""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torcheer as tl
from torcheer.errors import ComparisonError

Tensor = torch.Tensor


class Target(nn.Module):
    """TorchBug's demo: a network of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1)
        self.conv3 = nn.Conv2d(6, 6, 3, padding=1, stride=2)
        self.act1, self.act2 = nn.PReLU(), nn.ReLU()
        self.norm = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act2(self.conv2(self.act1(self.conv1(x))))
        return self.fc(self.norm(self.conv3(x)).mean((2, 3)))


class New(nn.Module):
    """The same network written by somebody else; ``wrong`` in TorchBug's way: PReLU replaced by ReLU."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        activation: nn.Module = nn.ReLU() if wrong else nn.PReLU()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), activation)
        self.body = nn.Conv2d(6, 6, 3, padding=1)
        self.down = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, stride=2), nn.BatchNorm2d(6))
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.body(self.stem(x)))
        return self.head(self.down(x).mean((2, 3)))


IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)) - 0.5


def summaries(target: nn.Module, new: nn.Module) -> tuple[tl.ModelSummary, tl.ModelSummary]:
    return tl.ModelSummary(target, "Target"), tl.ModelSummary(new, "New")


def outputs(target: nn.Module, new: nn.Module, x: Any, **options: Any) -> Any:
    a, b = summaries(target, new)
    return a.compare_outputs(b, x, **options)


def module_outputs(target: nn.Module, new: nn.Module, x: Any, **options: Any) -> Any:
    a, b = summaries(target, new)
    return a.compare_module_outputs(b, x, **options)


# -- summary ---------------------------------------------------------------------------------------------


def test_leaf_modules_are_counted_and_told_apart_by_their_attributes() -> None:
    summary = tl.ModelSummary(Target(), "Target")
    convolutions = {group.attributes["stride"]: group for group in summary.groups if group.type_name == "Conv2d"}
    assert [group.count for group in summary.groups if group.type_name == "Conv2d"] == [1, 1, 1]
    assert convolutions[2, 2].addresses == ("conv3",)
    assert len(summary.groups) == 7


def test_a_summary_has_a_table_per_type_with_instances_and_params() -> None:
    text = str(tl.ModelSummary(nn.Sequential(nn.Conv2d(6, 6, 3), nn.Conv2d(6, 6, 3), nn.Linear(6, 4)), "Target"))
    assert text.startswith("Leaf modules of Target\n")
    assert "\nConv2d  in_channels=6, out_channels=6, kernel_size=(3, 3), " in text
    assert ["2", "330", "660"] in [line.split() for line in text.splitlines()]
    assert ["6", "4", "1", "28", "28"] in [line.split() for line in text.splitlines()]
    assert text.endswith("3 leaf modules, 688 params in total")


def test_a_summary_is_json_and_html_too() -> None:
    summary = tl.ModelSummary(Target(), "Target")
    data = json.loads(summary.to_json())
    assert data["num_params"] == sum(param.numel() for param in Target().parameters())
    assert sum(group["num_instances"] for group in data["groups"]) == 7
    assert "BatchNorm2d" in summary._repr_html_()


def test_colour_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = summaries(Target(), New(wrong=True))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    a.compare(b).print()
    assert "\x1b[1;31m" in capsys.readouterr().out
    assert "\x1b[" not in str(a.compare(b))


def test_shared_and_lazy_parameters_are_counted_once_or_said_to_be_unknown() -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert tl.ModelSummary(tied, "tied").num_params == 16 + 4 + 4
    lazy = tl.ModelSummary(nn.Sequential(nn.LazyLinear(3)), "lazy")
    assert lazy.num_params is None
    assert "unknown params" in str(lazy)


# -- leaf modules compared --------------------------------------------------------------------------------


def test_missing_and_extraneous_leaf_modules() -> None:
    a, b = summaries(Target(), New(wrong=True))
    found = a.compare(b)
    assert not found
    assert [pair.either.type_name for pair in found.missing] == ["PReLU"]
    assert not found.extraneous  # the ReLU of the target is called as a function, and the new one stands for PReLU
    assert "missing or extraneous in New\n" in str(found)
    assert "1 missing" in str(found)
    assert [pair.either.type_name for pair in b.compare(a).extraneous] == ["PReLU"]
    assert a.compare(a)


def test_a_module_called_as_a_function_is_named_as_such() -> None:
    a, b = summaries(Target(), New())
    found = a.compare_invoked(b, IMAGES)
    assert ("relu", 0, 1) in found.functions
    assert "relu 0 and 1" in str(found)


def test_registered_and_not_invoked() -> None:
    class Forgetful(Target):
        def forward(self, x: Tensor) -> Tensor:
            x = self.act2(self.conv2(self.act1(self.conv1(x))))
            return self.fc(self.conv3(x).mean((2, 3)))

    a, b = summaries(Target(), Forgetful())
    assert a.compare(b)  # they have the same leaf modules
    found = a.compare_invoked(b, IMAGES)
    assert not found
    assert found.unused == ([], ["norm"])
    assert [pair.either.type_name for pair in found.missing] == ["BatchNorm2d"]
    assert "Registered in New and not used in forward: norm" in str(found)


def test_weights_read_by_their_parent_count_as_used() -> None:
    attention = tl.ModelSummary(Attention(), "attention")
    assert attention.compare_invoked(attention, torch.rand(2, 5, 8)).unused == ([], [])


# -- equal initialisation ---------------------------------------------------------------------------------


def test_equal_weights_by_attributes_and_occurrence() -> None:
    first, second = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.ModuleDict({"x": nn.Linear(4, 4)})
    tl.equal_weights(first, second)
    assert torch.equal(first[0].weight, second["x"].weight)
    assert not torch.equal(first[0].weight, first[1].weight)
    assert first[0].weight.std() > 0.1


def test_equal_weights_by_the_parameter_map() -> None:
    packed, parts = nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2)
    tl.equal_weights(packed, parts, by="map", seed=3)
    assert torch.equal(packed.in_proj_weight, parts.in_proj_weight)
    with pytest.raises(ComparisonError, match="without a counterpart"):
        tl.equal_weights(Target(), New(wrong=True), by="map", inp=IMAGES)
    target, new = Target().eval(), New().eval()
    tl.equal_weights(target, new, by="map", inp=IMAGES)
    assert torch.equal(target(IMAGES), new(IMAGES))


def test_constants_stay_as_each_model_has_them() -> None:
    class Tables(nn.Module):
        def __init__(self, registered: bool) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            mask = torch.full((3, 3), float("-inf")).triu(1)
            if registered:
                self.register_buffer("mask", mask)
            else:
                self.table = [mask]

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x)
            return (x @ x.mT + (self.mask if hasattr(self, "mask") else self.table[0])).softmax(-1) @ x

    x = torch.rand(2, 3, 4)
    for init in ("attributes", "map"):
        assert outputs(Tables(True), Tables(False), x, init=init)
    assert tl.autodiff(Tables(True), Tables(False), x, show=False)


def test_counters_begin_at_zero() -> None:
    models = [nn.Sequential(nn.BatchNorm1d(4, momentum=None)) for _ in range(2)]
    models[0](torch.rand(3, 4))  # a mean over all batches so far: how many there were matters
    assert tl.autodiff(*models, torch.rand(3, 4), options={"atol": 1e-6}, show=False)


def test_buffers_are_reset_and_everything_is_put_back() -> None:
    target, new = Target(), New()
    target(IMAGES)  # moves the running statistics away from the other's
    before = copy.deepcopy((target.state_dict(), new.state_dict()))
    random = torch.get_rng_state()
    assert outputs(target.eval(), new.eval(), IMAGES)
    for was, model in zip(before, (target, new), strict=True):
        assert all(torch.equal(was[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


def test_own_weights_when_asked_for() -> None:
    target, new = Target(), New()
    assert not outputs(target, new, IMAGES, init=None)
    tl.equal_weights(target, new)
    assert outputs(target, new, IMAGES, init=None)


# -- final outputs ----------------------------------------------------------------------------------------


def test_final_outputs_are_compared() -> None:
    assert outputs(Target(), New(), IMAGES)
    found = outputs(Target(), New(wrong=True), IMAGES)
    assert not found
    assert "The outputs differ." in str(found)
    assert found.distances[0].max_abs > 1e-3


def test_a_tensor_is_picked_out_of_structured_outputs() -> None:
    class Structured(New):
        def forward(self, x: Tensor) -> Any:
            return {"logits": super().forward(x), "features": [x, x]}

    assert outputs(Target(), Structured(), IMAGES, model_output_fn=lambda out: out["logits"])
    found = outputs(Target(), Structured(), IMAGES)
    assert not found
    assert "Pick the ones to compare with target_output_fn and model_output_fn." in str(found)
    with pytest.raises(ComparisonError, match="model_output_fn returned a str"):
        outputs(Target(), Structured(), IMAGES, model_output_fn=lambda out: "logits")


# -- outputs of leaf modules --------------------------------------------------------------------------------


def test_outputs_of_leaf_modules_by_brute_force() -> None:
    found = module_outputs(Target().eval(), New().eval(), IMAGES, types=["Conv2d", nn.BatchNorm2d, "Linear"])
    assert found
    assert found.num_matches == 5
    wrong = module_outputs(Target().eval(), New(wrong=True).eval(), IMAGES)
    assert not wrong
    by_type = {kind.pair.either.addresses: kind for kind in wrong.kinds}
    assert by_type["conv1",].is_equal
    assert not by_type["conv2",].is_equal
    assert "elements differ" in str(wrong)
    with pytest.raises(ComparisonError, match="No leaf module of type 'Conv3d' was called"):
        module_outputs(Target(), New(), IMAGES, types=["Conv3d"])


class Two(nn.Module):
    """Two equal layers, called in this order."""

    def __init__(self, order: tuple[int, int] = (0, 1)) -> None:
        super().__init__()
        self.order = order
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: Tensor) -> Tensor:
        for place in self.order:
            x = torch.tanh(self.layers[place](x))
        return x


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (1, 1)], ids=["swapped", "reused", "other-reused"])
def test_equal_layers_swapped_or_reused_are_found(order: tuple[int, int]) -> None:
    x = torch.rand(3, 4)
    assert outputs(Two(), Two(), x)
    assert not outputs(Two(), Two(order), x)
    assert not module_outputs(Two(), Two(order), x)
    assert not tl.autodiff(Two(), Two(order), x, show=False)


def test_a_corrupted_item_of_the_batch_is_found() -> None:
    class Corrupted(Two):
        def forward(self, x: Tensor) -> Tensor:
            x = x.clone()
            x[1] += 0.5
            return super().forward(x)

    x = torch.rand(3, 4)
    found = module_outputs(Two(), Corrupted(), x)
    assert not found
    assert found.kinds[0].only_a[0].distance.largest_at[0] == 1
    assert not outputs(Two(), Corrupted(), x)


class Recurrent(nn.Module):
    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, layers, batch_first=True)

    def forward(self, ids: Tensor, scale: float = 1.0, *, bias: Tensor | None = None) -> Any:
        out, (h, c) = self.lstm(self.embed(ids) * scale)
        return out if bias is None else out + bias, h, c


@pytest.mark.parametrize(
    "inp",
    [
        torch.tensor([[1, 2, 3], [4, 5, 0]]),
        (torch.tensor([[1, 2, 3], [4, 5, 0]]), 2.0),
        {"ids": torch.tensor([[1, 2, 3]]), "bias": torch.ones(5)},
    ],
    ids=["ints", "several", "keywords"],
)
def test_tuple_outputs_and_inputs_of_every_kind(inp: Any) -> None:
    found = module_outputs(Recurrent(), Recurrent(), inp)
    assert found
    assert {kind.pair.either.type_name for kind in found.kinds} == {"Embedding", "LSTM"}
    assert outputs(Recurrent(), Recurrent(), inp)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


@pytest.mark.parametrize("training", [True, False])
def test_attention_equals_itself(training: bool) -> None:
    x = torch.rand(2, 5, 8)
    assert module_outputs(Attention().train(training), Attention().train(training), x)
    assert outputs(Attention().train(training), Attention().train(training), x)


def test_another_eps_is_reported_and_not_left_out() -> None:
    def norm(eps: float) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=eps))

    a, b = summaries(norm(1e-5), norm(0.5))
    assert [pair.either.attributes["eps"] for pair in a.compare(b).missing] == [1e-5]
    assert [pair.either.attributes["eps"] for pair in a.compare(b).extraneous] == [0.5]
    found = a.compare_module_outputs(b, torch.rand(3, 4))
    assert not found
    assert found.num_mismatches == 2
    assert "eps" in str(found)
    assert not a.compare_outputs(b, torch.rand(3, 4))


class Raw(nn.Module):
    """Parameters of its own beside children, and functions only."""

    def __init__(self, scale: bool = True) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.position = nn.Parameter(torch.rand(1, 4))
        if scale:
            self.scale = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.fc(x) + self.position)
        return x * self.scale if hasattr(self, "scale") else x


def test_raw_parameters_and_functions_are_seen() -> None:
    a, b = summaries(Raw(), Raw(scale=False))
    assert [pair.either.attributes for pair in a.compare(b).missing] == [{"shape": (4,)}]
    found = a.compare_invoked(b, torch.rand(2, 4))
    assert ("mul", 1, 0) in found.functions
    assert ("gelu", 1, 1) in found.functions
    assert outputs(Raw(), Raw(), torch.rand(2, 4))  # raw parameters are initialised equally too


def test_dropout_draws_the_same_numbers_on_both_sides() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 40), nn.Dropout(0.5), nn.Linear(40, 4))

    assert module_outputs(model(), model(), torch.rand(3, 4))


def test_no_hook_is_left_behind() -> None:
    target, new = Target(), New()
    kept = [dict(vars(module)) for module in (*target.modules(), *new.modules())]
    for _ in range(2):
        module_outputs(target, new, IMAGES)
    assert [dict(vars(module)) for module in (*target.modules(), *new.modules())] == kept
    assert not any(module._forward_hooks for module in (*target.modules(), *new.modules()))


def test_a_model_that_raises_is_put_back() -> None:
    class Raising(Two):
        def forward(self, x: Tensor) -> Tensor:
            self.layers[0](x)
            raise ValueError("no")

    target, new = Two(), Raising()
    before = copy.deepcopy((target.state_dict(), new.state_dict()))
    random = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"^no$"):
        outputs(target, new, torch.rand(2, 4, generator=torch.Generator()))
    for was, model in zip(before, (target, new), strict=True):
        assert all(torch.equal(was[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


# -- what rivals call equal: the line is named, too ----------------------------------------------------------


def test_the_line_with_the_wrong_activation_is_named() -> None:
    target, new = Target().eval(), New(wrong=True).eval()
    tl.equal_weights(target, new)
    found = tl.compare(target, new, IMAGES)
    assert found.first_divergence is not None
    assert found.first_divergence.a.module == "act1"
    assert found.first_divergence.b.module == "stem.1"
    assert found.first_divergence.a.frame.text == "x = self.act2(self.conv2(self.act1(self.conv1(x))))"
    right = New().eval()
    tl.equal_weights(target, right)
    assert tl.compare(target, right, IMAGES), str(tl.compare(target, right, IMAGES))


def test_a_comparison_on_equal_weights_stays_on_them() -> None:
    target, new = Target(), New(wrong=True)  # in training mode: gradients are compared, the reference is run again
    before = copy.deepcopy((target.state_dict(), new.state_dict()))
    found = tl.compare(target, new, IMAGES, weights="equal")
    assert found.verdict == "diverged"
    assert found.first_divergence is not None
    assert found.first_divergence.b.module == "stem.1"
    assert tl.compare(target, New(), IMAGES, weights="equal")
    for was, model in zip(before, (target, new), strict=True):
        assert all(torch.equal(was[name], tensor) for name, tensor in model.state_dict().items())


class Planted(Two):
    """``Two`` with one of the faults that pass elsewhere."""

    def __init__(self, fault: str) -> None:
        super().__init__({"swapped": (1, 0), "reused": (0, 0)}.get(fault, (0, 1)))
        self.fault = fault
        self.norm = nn.LayerNorm(4, eps=0.5 if fault == "eps" else 1e-5)

    def forward(self, x: Tensor) -> Tensor:
        if self.fault == "item":
            x = torch.cat([x[:1], x[1:2] + 0.5, x[2:]])
        x = self.norm(super().forward(x))
        if self.fault == "off by two":
            x = x + 2
        return x.flip(0) if self.fault == "flipped" else x


@pytest.mark.parametrize("fault", ["swapped", "reused", "item", "eps", "off by two", "flipped"])
def test_what_rivals_call_equal_is_found(fault: str) -> None:
    torch.manual_seed(0)
    target, new = Planted(""), Planted(fault)
    target.load_state_dict({name: torch.randn_like(tensor) for name, tensor in target.state_dict().items()})
    new.load_state_dict(target.state_dict())
    x = torch.randn(3, 4)
    found = tl.compare(target, new, x)
    assert found.verdict == "diverged"
    module = {"swapped": "layers.1", "reused": "layers.0", "eps": "norm"}.get(fault, "")
    assert found.first_divergence is not None
    assert found.first_divergence.b is not None
    assert found.first_divergence.b.module == module, str(found)
    assert tl.compare(target, target, x)  # one model on both sides, gradients included


def test_one_model_is_not_trained_against_itself() -> None:
    with pytest.raises(ComparisonError, match=r"a and b are one model, .* Pass copy\.deepcopy\(model\) as b\."):
        tl.compare(model := Two(), model, torch.rand(2, 4), steps=1)


# -- marked modules -----------------------------------------------------------------------------------------


def test_marked_modules_alone_are_compared() -> None:
    target, new = Target().eval(), New(wrong=True).eval()
    tl.mark(new.stem[0], "first convolution")
    tl.mark(target.conv1, "entry")
    found = module_outputs(target, new, IMAGES, marked_only=True)
    assert found
    assert found.kinds[0].matches == (("entry", "first convolution"),)
    tl.mark(new.body, "second convolution")
    marked = tl.mark_all(target)
    assert marked["conv1"] == "entry"
    assert marked["conv2"].startswith("conv2: Conv2d(6, 6, kernel_size=(3, 3)")
    found = module_outputs(target, new, IMAGES, marked_only=True)
    assert not found
    assert [one.name for one in found.kinds[0].only_b] == ["second convolution"]
    assert "second convolution" in str(found)


def test_a_container_can_be_marked() -> None:
    target, new = Target().eval(), New().eval()
    tl.mark(target.act1, "activation")
    tl.mark(new.stem, "stem")
    assert module_outputs(target, new, IMAGES, marked_only=True).kinds[0].matches == (("activation", "stem"),)


def test_a_mark_changes_nothing_in_the_module() -> None:
    module = nn.Linear(3, 3)
    pickled, kept = pickle.dumps(module), dict(vars(module))
    tl.mark(module, "layer")
    assert vars(module) == kept
    assert pickle.dumps(module) == pickled
    assert list(module.state_dict()) == ["weight", "bias"]
    copied = copy.deepcopy(nn.Sequential(module))
    assert tl.unmark(copied) == 0
    assert tl.unmark(nn.Sequential(module)) == 1
    assert tl.unmark(module) == 0


def test_marks_that_make_no_sense() -> None:
    with pytest.raises(ComparisonError, match=r"^No module of Target is marked\. Call tl\.mark"):
        module_outputs(Target(), New(), IMAGES, marked_only=True)
    with pytest.raises(ComparisonError, match=r"A mark is a name, and '' is none"):
        tl.mark(nn.ReLU(), "")
    with pytest.raises(ComparisonError, match="A str was given where a module is expected"):
        tl.mark("relu", "layer")
