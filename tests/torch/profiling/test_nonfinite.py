"""NaN and Inf are found where they are born; what healthy models do on purpose raises no alarm."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torcheer as tl
from tests.torch.profiling.sick import CASES, Case, with_bad_input, with_bad_param

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def guarded(model: nn.Module, *args: Any, loss: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    with tl.InspectorGadgets(model, measure="nan", **options) as inspector:
        out = model(*args)
        (loss(out) if loss else out).backward()
    return inspector.report


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_profile_finds_the_birth(case: Case) -> None:
    torch.manual_seed(0)
    model, x = case.make()
    report = tl.profile(model, x, backward=True, measure="nan")
    first = report.alarms[0]
    assert (first.phase, first.function, first.module, first.kind) == (
        case.phase, case.function, case.module, case.kind,
    ), str(report)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_guard_finds_the_birth(case: Case) -> None:
    torch.manual_seed(0)
    model, x = case.make()
    first = guarded(model, x).alarms[0]
    assert (first.phase, first.function, first.module, first.kind) == (
        case.phase, case.function, case.module, case.kind,
    )  # fmt: skip


@pytest.mark.parametrize("make", [with_bad_input, with_bad_param])
def test_what_came_in_is_told_from_what_was_born(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    for report in (tl.profile(*make(), backward=True, measure="nan"), guarded(*make())):
        assert report.alarms[0].kind == "given"
        assert report.alarms[0].module == ("first" if make is with_bad_input else "last")


def test_source_line_and_inputs_are_told() -> None:
    torch.manual_seed(0)
    model, x = CASES[0].make()
    finding = tl.profile(model, x, measure="nan").alarms[0]
    assert finding.source.startswith("sick.py:")
    assert [(one.smallest, one.largest) for one in finding.inputs] == [(0.0, 0.0), (0.0, 0.0)]
    assert finding.facts.nan == 32


def test_stop_raises_at_the_birth_and_leaves_nothing_behind() -> None:
    torch.manual_seed(0)
    model, x = CASES[0].make()
    call = nn.Module.__call__
    with pytest.raises(
        tl.TorcheerError, match=r"32 NaN of 32 numbers came from aten.div.Tensor \(forward\) in module 'sick'"
    ):
        guarded(model, x, nan="stop")
    assert nn.Module.__call__ is call
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.zeros(1) / torch.zeros(1)


def test_warn_warns_once_per_birth() -> None:
    torch.manual_seed(0)
    model, x = CASES[5].make()
    with pytest.warns(RuntimeWarning, match=r"NaN of 32 numbers came from aten.log.default") as caught:
        report = guarded(model, x, nan="warn")
    assert len(caught) == len(report.alarms)


def healthy() -> dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]]:
    import transformers

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    ids = torch.randint(1, 90, (2, 12))
    mask = torch.ones_like(ids)
    mask[0, 8:] = 0

    def gpt2() -> Any:
        config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=100, attn_implementation="sdpa")
        return transformers.GPT2LMHeadModel(config), (ids,), {"attention_mask": mask, "labels": ids}

    def llama() -> Any:
        config = transformers.LlamaConfig(vocab_size=100, attn_implementation="sdpa", **small)
        return transformers.LlamaForCausalLM(config), (ids,), {"attention_mask": mask, "labels": ids}

    def bert() -> Any:
        config = transformers.BertConfig(vocab_size=100, attn_implementation="sdpa", **small)
        return transformers.BertForMaskedLM(config), (ids,), {"attention_mask": mask, "labels": ids}

    def t5() -> Any:
        config = transformers.T5Config(vocab_size=100, d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4,
                                       decoder_start_token_id=0)  # fmt: skip
        return transformers.T5ForConditionalGeneration(config), (ids,), {"attention_mask": mask, "labels": ids}

    def encoder() -> Any:
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        causal = nn.Transformer.generate_square_subsequent_mask(12)
        return nn.TransformerEncoder(layer, 2), (torch.randn(2, 12, 32),), {"mask": causal, "is_causal": True}

    return {"gpt2": gpt2, "llama": llama, "bert": bert, "t5": t5, "encoder": encoder}


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5", "encoder"])
def test_healthy_models_raise_no_alarm(name: str) -> None:
    torch.manual_seed(0)
    model, args, kwargs = healthy()[name]()
    report = tl.profile(model, *args, backward=True, measure="nan", **kwargs)
    assert [finding.text for finding in report.alarms] == []
    with tl.InspectorGadgets(model, measure="nan", nan="stop") as inspector:
        out = model(*args, **kwargs)
        (out.loss if hasattr(out, "loss") else out.mean()).backward()
    assert inspector.report.alarms == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_sums_tell_as_much_as_isfinite(dtype: torch.dtype) -> None:
    from torcheer.capture.torch.finite import facts_of, is_finite

    generator = torch.Generator().manual_seed(0)
    for turn in range(60):
        tensor = torch.randn(1 + turn, generator=generator).to(dtype) * (100 if turn % 2 else 1)
        for place, bad in ((turn // 2, "nan"), (turn // 3, "inf"), (turn // 5, "-inf")):
            assert is_finite(tensor)
            sick = tensor.clone()
            sick[place] = float(bad)
            assert not is_finite(sick)
            facts = facts_of("output", sick)
            assert facts.nan + facts.pos_inf + facts.neg_inf == 1
        both = tensor.clone()
        both[0], both[-1] = float("inf"), float("-inf")
        assert not is_finite(both)
