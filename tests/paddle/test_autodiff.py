"""autodiff across frameworks: equal networks are equal, planted mistakes are named at their layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import torcheer as tl
from tests.paddle import bugs
from tests.paddle.equal_pairs import EQUAL_PAIRS, EqualPair, dropping
from tests.paddle.model_pairs import MODEL_PAIRS
from torcheer.errors import ComparisonError

# Said by Paddle whenever a BatchNorm trains.
pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track global mean:UserWarning")


@pytest.mark.parametrize("name", MODEL_PAIRS)
@pytest.mark.parametrize("torch_first", [False, True])
def test_equal_networks_are_equal(name: str, torch_first: bool) -> None:
    pair = MODEL_PAIRS[name]
    layer, module = pair.make()
    models = (module, layer) if torch_first else (layer, module)
    report = tl.autodiff(*models, pair.inputs(), options={"atol": 1e-4, "steps": 3})
    assert report, str(report)
    assert "SUCCESS !!!" in str(report)
    assert report.num_forward > 5
    assert report.num_backward > 5
    assert report.num_steps == 3


@pytest.mark.parametrize("pair", EQUAL_PAIRS, ids=lambda pair: pair.name)
@pytest.mark.parametrize("torch_first", [False, True])
def test_equal_models_of_many_kinds_are_equal(pair: EqualPair, torch_first: bool) -> None:
    models = pair.paddle(), pair.torch()
    report = tl.autodiff(*(models[::-1] if torch_first else models), pair.inputs, steps=2, options={"atol": 1e-4})
    assert report, str(report)
    assert report.num_forward > 0
    assert report.num_backward > 0 or pair.name == "no parameters"


@pytest.mark.parametrize("bug", bugs.BUGS, ids=lambda bug: bug.name)
def test_a_mistake_is_named_at_its_layer(bug: bugs.Bug) -> None:
    report = bugs.run(bug)
    assert bugs.names_the_layer(report, bug), f"{report.blamed}\n{report}"
    assert "FAILED !!!" in str(report)


@pytest.mark.parametrize("change", bugs.CHANGES, ids=lambda change: f"{change.model} {change.layer}")
@pytest.mark.parametrize("torch_first", [False, True])
def test_a_change_of_the_pytorch_model_is_named(change: bugs.Change, torch_first: bool) -> None:
    report = bugs.run_change(change, torch_first=torch_first)
    assert report.blamed == (change.layer, change.layer), str(report)


def test_random_layers_are_said_to_be_random() -> None:
    report = tl.autodiff(dropping(paddle.nn, 0.5), dropping(torch.nn, 0.5), np.ones((2, 4), "float32"))
    assert report.first.why.endswith("each side drops at random: put both in eval mode, or compare with p=0")


def test_the_report_is_short_and_folds_the_frameworks() -> None:
    pair = MODEL_PAIRS["encoder"]
    layer, module = pair.make()
    module.encoder.layers[1].activation = torch.nn.functional.relu
    report = tl.autodiff(layer, module, pair.inputs(), options={"atol": 1e-4})
    text = str(report)
    assert report.blamed == ("encoder.layers.1", "encoder.layers.1")
    assert text.count("After training, ") == 8
    assert f"\n… and {len(report.params) - 8} more: report.params has them all.\n" in text
    assert "    … 2 frames of paddle itself\n" in text
    assert text.endswith("    … 3 frames of torch itself")
    assert "return self.head(self.encoder(x)[:, 0])\n    … " in text
    assert "The largest is at [" in text
    assert "site-packages" not in text


# -- options, losses, optimizers ---------------------------------------------------------------------------------


class PaddleNet(paddle.nn.Layer):
    def __init__(self, sign: float = 1.0, eps: float = 1e-5) -> None:
        super().__init__()
        self.sign = sign
        self.fc1, self.fc2 = paddle.nn.Linear(6, 8), paddle.nn.Linear(8, 3)
        self.norm1, self.norm2 = paddle.nn.LayerNorm(8, eps), paddle.nn.LayerNorm(3, eps)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.sign * self.norm2(self.fc2(paddle.tanh(self.norm1(self.fc1(x))))) * scale


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)
        self.norm1, self.norm2 = torch.nn.LayerNorm(8), torch.nn.LayerNorm(3)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.norm2(self.fc2(torch.tanh(self.norm1(self.fc1(x))))) * scale


X = np.random.default_rng(1).standard_normal((5, 6)).astype("float32")


def adam(layer: Any, module: Any, rate: float = 0.01) -> tuple[Any, Any]:
    return (
        paddle.optimizer.Adam(0.01, parameters=layer.parameters()),
        torch.optim.Adam(module.parameters(), rate),
    )


def test_losses_and_optimizers_of_the_user() -> None:
    layer, module = PaddleNet(), TorchNet()
    losses = (lambda out: (out**2).mean(), lambda out: out.pow(2).mean())
    optimizers = adam(layer, module)
    report = tl.autodiff(layer, module, X, loss_fn=losses, optimizers=optimizers, options={"atol": 1e-4, "steps": 3})
    assert report, str(report)
    assert not optimizers[0].state_dict().get("fc1.w_0_moment1_0"), "the optimizer's state is put back"
    assert not module.state_dict()["fc1.weight"].grad_fn
    wrong = tl.autodiff(layer, module, X, loss_fn=losses, optimizers=adam(layer, module, 0.03), options={"atol": 1e-4})
    assert not wrong
    assert wrong.first is None
    assert {difference.what for difference in wrong.params} == {"weight"}
    other_losses = (lambda out: (out**2).mean(), lambda out: out.abs().mean())
    lost = tl.autodiff(layer, module, X, loss_fn=other_losses, options={"atol": 1e-4})
    assert lost.first is not None
    assert lost.first.stage == "backward"


OPTIMIZERS: dict[str, tuple[Any, Any]] = {
    "SGD": (lambda p: paddle.optimizer.SGD(0.1, parameters=p), lambda p: torch.optim.SGD(p, 0.1)),
    "Momentum": (
        lambda p: paddle.optimizer.Momentum(0.1, 0.9, parameters=p),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    ),
    "Adam": (lambda p: paddle.optimizer.Adam(0.01, parameters=p), lambda p: torch.optim.Adam(p, 0.01)),
    "AdamW": (
        lambda p: paddle.optimizer.AdamW(0.01, parameters=p, weight_decay=0.05),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.05),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("torch_first", [False, True])
def test_optimizers(name: str, torch_first: bool) -> None:
    layer, module = PaddleNet(), TorchNet()
    models, made = (
        (layer, module),
        [make(list(m.parameters())) for make, m in zip(OPTIMIZERS[name], (layer, module), strict=True)],
    )
    if torch_first:
        models, made = models[::-1], made[::-1]
    report = tl.autodiff(*models, X, optimizers=made, steps=4, options={"atol": 1e-4})
    assert report, str(report)
    assert report.num_steps == 4


@pytest.mark.parametrize(
    ("paddles", "torchs", "step"),
    [
        (lambda p: paddle.optimizer.SGD(0.1, parameters=p), lambda p: torch.optim.SGD(p, 0.2), 0),
        # A momentum shows from the second step on.
        (lambda p: paddle.optimizer.Momentum(0.1, 0.9, parameters=p), lambda p: torch.optim.SGD(p, 0.1, 0.5), 1),
        (
            lambda p: paddle.optimizer.AdamW(0.01, parameters=p, weight_decay=1.0),
            lambda p: torch.optim.AdamW(p, 0.01),
            0,
        ),
    ],
    ids=["learning rate", "momentum", "decay"],
)
def test_optimizers_that_differ(paddles: Any, torchs: Any, step: int) -> None:
    layer, module = PaddleNet(), TorchNet()
    made = paddles(layer.parameters()), torchs(list(module.parameters()))
    report = tl.autodiff(layer, module, X, optimizers=made, steps=3, options={"atol": 1e-4})
    assert not report
    assert report.first is None, "forward and backward agree"
    assert {(one.what, one.step) for one in report.params} == {("weight", step)}


def test_losses_and_optimizers_that_make_no_sense() -> None:
    layer, module = PaddleNet(), TorchNet()
    sgd = torch.optim.SGD(module.parameters(), 0.1)
    with pytest.raises(
        ComparisonError, match=r"the paddle model was given a torch\.optim\.sgd\.SGD\. Pass one optimizer per"
    ):
        tl.autodiff(layer, module, X, optimizers=sgd)
    with pytest.raises(ComparisonError, match=r"optimizers has 1 entries\. It takes two"):
        tl.autodiff(layer, module, X, optimizers=[sgd])
    with pytest.raises(ComparisonError, match="loss_fn returned a float for the torch model"):
        tl.autodiff(layer, module, X, loss_fn=(lambda out: out.sum(), lambda out: 3.0))
    with pytest.raises(ComparisonError, match="inp is None"):
        tl.autodiff(layer, module, None)


def test_an_optimizer_goes_on_as_if_nothing_had_been() -> None:
    layer, module = PaddleNet(), TorchNet()
    optimizer = paddle.optimizer.Adam(0.01, parameters=layer.parameters())

    def train() -> np.ndarray:
        layer(paddle.to_tensor(X)).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad()
        return layer.fc1.weight.numpy().copy()

    train()
    state = {name: np.array(value) for name, value in layer.state_dict().items()}
    moments = {name: np.array(value) for name, value in optimizer.state_dict().items() if hasattr(value, "numpy")}
    tl.autodiff(layer, module, X, optimizers=(optimizer, torch.optim.Adam(module.parameters(), 0.01)))
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(np.array(value), state[name])
    for name, value in optimizer.state_dict().items():
        if hasattr(value, "numpy"):
            np.testing.assert_array_equal(np.array(value), moments[name])


def test_mean_mode_is_what_padiff_does_and_strict_is_not() -> None:
    layer, module = PaddleNet(sign=-1.0), TorchNet()
    tl.copy_weights(module, layer)
    strict = tl.autodiff(layer, module, X, auto_weights=False, options={"atol": 1e-4, "diff_phase": "forward"})
    mean = tl.autodiff(
        layer, module, X, auto_weights=False, options={"atol": 1e-4, "compare_mode": "mean", "diff_phase": "forward"}
    )
    assert not strict
    assert strict.max_output_diff > 1
    assert mean, "the mean of a normalised row is zero with either sign"
    assert "of the means alone" in str(strict.tolerance.__class__(1e-4, 0.0, by_mean=True))


def test_single_step_finds_every_layer_that_differs_by_itself() -> None:
    layer, module = PaddleNet(eps=1e-3), TorchNet()
    report = tl.autodiff(layer, module, X, options={"atol": 1e-4, "single_step": True})
    assert report.blamed == ("norm1", "norm1")
    assert report.notes == ["by themselves differ too: norm2"]
    for models in ((PaddleNet(), module), (module, PaddleNet())):
        assert tl.autodiff(*models, X, options={"atol": 1e-4, "single_step": True})


def test_a_recurrent_layer_in_eval_mode() -> None:
    pair = MODEL_PAIRS["lstm"]
    layer, module = pair.make()
    layer.eval()
    module.eval()
    with pytest.raises(ComparisonError, match="Paddle cannot run backward through a recurrent layer in eval mode"):
        tl.autodiff(layer, module, pair.inputs())
    assert tl.autodiff(layer, module, pair.inputs(), options={"diff_phase": "forward", "atol": 1e-4})


@pytest.mark.parametrize(
    "inp",
    [{"x": X, "scale": 2.0}, (X, 2.0), X, torch.from_numpy(X), paddle.to_tensor(X), [X], X.astype("float64")],
    ids=["dict", "tuple", "array", "torch tensor", "paddle tensor", "list", "double"],
)
def test_inputs(inp: Any) -> None:
    assert tl.autodiff(PaddleNet(), TorchNet(), inp, options={"atol": 1e-4})
    assert tl.autodiff(TorchNet(), PaddleNet(), inp, options={"atol": 1e-4})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tolerance": 1}, "options has no 'tolerance'. It takes 'atol', 'rtol'"),
        ({"compare_mode": "loose"}, "options['compare_mode'] is 'loose'. It takes 'strict' or 'mean'."),
        ({"steps": -1}, "options['steps'] is -1. It takes a number that is not negative."),
        ({"single_step": "yes"}, "options['single_step'] is 'yes'. It takes True or False."),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ComparisonError) as caught:
        tl.autodiff(PaddleNet(), TorchNet(), X, options=options)
    assert text in str(caught.value)


def test_models_that_do_not_fit_together() -> None:
    with pytest.raises(ComparisonError, match=r"paddle has .*fc1\.weight.* without a counterpart"):
        tl.autodiff(PaddleNet(), torch.nn.Linear(6, 3), X)
    with pytest.raises(ComparisonError, match="A int was given where a model is expected"):
        tl.autodiff(PaddleNet(), 3, X)


# -- weights and layers of the user's own ------------------------------------------------------------------------


class PaddleGain(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = self.create_parameter([6, 8])

    def forward(self, x: Any) -> Any:
        return paddle.matmul(x, self.gamma)


class TorchProject(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 6))

    def forward(self, x: Any) -> Any:
        return x @ self.weight.T


def test_layers_of_the_users_own() -> None:
    layer, module = paddle.nn.Sequential(PaddleGain()), torch.nn.Sequential(TorchProject())
    with pytest.raises(ComparisonError, match="without a counterpart"):
        tl.autodiff(layer, module, X)
    tl.register_layer_pair(PaddleGain, TorchProject, names={"gamma": "weight"}, transforms={"gamma": "transpose"})
    for models in ((layer, module), (module, layer)):
        assert tl.autodiff(*models, X, options={"atol": 1e-5})
    with pytest.raises(ComparisonError, match="'rotate' for 'gamma' is no transform"):
        tl.register_layer_pair(PaddleGain, TorchProject, transforms={"gamma": "rotate"})


def test_copied_weights_give_equal_outputs() -> None:
    for name, pair in MODEL_PAIRS.items():
        layer, module = pair.make()
        module.eval()
        layer.eval()
        inputs = pair.inputs()
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        # The random numbers of these models differ; after the copy their outputs do not.
        tl.copy_weights(module, layer)
        outputs = layer(*map(paddle.to_tensor, given)), module(*map(torch.from_numpy, given))
        first = [out[0] if isinstance(out, tuple) else out for out in outputs]
        np.testing.assert_allclose(first[0].numpy(), first[1].detach().numpy(), atol=1e-5, err_msg=name)
