"""Healthy models that make infinities on purpose: masks of attention, and T5's logarithm of zero."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
Maker = Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]


def healthy() -> dict[str, Maker]:
    import transformers  # takes seconds

    transformers.logging.set_verbosity_error()
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
