"""ViT: Hugging Face's against one of ``nn.MultiheadAttention`` blocks with patches cut by reshaping."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

H, HEADS, FF, LAYERS, PATCH, SIZE = 24, 3, 48, 2, 4, 16
BUGS = {
    "eps": Label("eps"),
    "gelu_kind": Label("gelu_kind"),
    "activation": Label("gelu_kind"),
    "norm_order": Label("norm_order"),
    "missing_bias": Label("missing_bias"),
    "transposed_weight": Label("down"),
    "patch_order": Label("patches embed"),
    "missing_cls": Label("cls"),
    "position_offset": Label("places"),
    "missing_residual": Label("norm_second", missing_in_a="add"),
    "missing_final_norm": Label("token head", missing_in_a="native_layer_norm"),
    "pooled_token": Label("token"),
    "mean_pool": Label("token"),
    "dropout_on": Label("dropout_on"),
    "swapped_qk": Label("attend"),
    "cls_at_end": Label("cls"),
    "detached": Label("", tensor="cut"),
}


class Block(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.attention = nn.MultiheadAttention(H, HEADS, batch_first=True)
        self.before = nn.LayerNorm(H, eps=1e-2 if bug == "eps" else 1e-12)
        self.after = nn.LayerNorm(H, eps=1e-12)
        self.up, self.down = nn.Conv1d(H, FF, 1), nn.Conv1d(FF, H, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bug == "norm_order":
            y = self.attention(x, x, x, need_weights=False)[0]  # @norm_order
            x = self.before(x + y)  # @norm_order
        else:
            y = self.before(x)  # @eps
            y = self.attention(y, y, y, need_weights=False)[0]  # @attend
            x = y if self.bug == "missing_residual" else x + y
        y = self.after(x).mT  # @norm_second
        bias = None if self.bug == "missing_bias" else self.up.bias
        y = F.conv1d(y, self.up.weight, bias)  # @missing_bias
        y = (
            F.relu(y)
            if self.bug == "activation"
            else F.gelu(y, approximate="tanh" if self.bug == "gelu_kind" else "none")
        )  # @gelu_kind
        if self.bug == "dropout_on":
            y = F.dropout(y, 0.1)  # @dropout_on
        return x + self.down(y).mT  # @down


class ViT(nn.Module):
    def __init__(self, bug: str | None) -> None:
        super().__init__()
        self.bug = bug
        self.cut = nn.Linear(3 * PATCH * PATCH, H)
        self.cls, self.places = nn.Parameter(torch.zeros(H)), nn.Parameter(torch.zeros(17, H))
        self.blocks = nn.ModuleList([Block(bug if i == 0 else None) for i in range(LAYERS)])
        self.norm = nn.LayerNorm(H, eps=1e-12)
        self.head = nn.Linear(H, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n = x.shape[0], SIZE // PATCH
        x = x.reshape(b, 3, n, PATCH, n, PATCH)  # @patches
        x = x.permute(0, 4, 2, 1, 3, 5) if self.bug == "patch_order" else x.permute(0, 2, 4, 1, 3, 5)  # @patches
        x = self.cut(x.reshape(b, n * n, -1))  # @embed
        if self.bug == "detached":
            x = x.detach()
        first = self.cls.expand(b, 1, H)
        if self.bug == "missing_cls":
            x = torch.cat((x.mean(1, keepdim=True), x), 1)  # @cls
        elif self.bug == "cls_at_end":
            x = torch.cat((x, first), 1)  # @cls
        else:
            x = torch.cat((first, x), 1)
        x = x + (self.places.roll(1, 0) if self.bug == "position_offset" else self.places)  # @places @cls
        for block in self.blocks:
            x = block(x)
        if self.bug != "missing_final_norm":
            x = self.norm(x)  # @token
        token = x.mean(1) if self.bug == "mean_pool" else x[:, 1 if self.bug == "pooled_token" else 0]  # @token
        return self.head(token)  # @head


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).logits


def make(bug: str | None, seed: int, attention: str = "eager") -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=H, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=FF, image_size=SIZE,
        patch_size=PATCH, num_labels=7, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation=attention,
    )  # fmt: skip
    a, b = lively(ViTForImageClassification(config), seed), ViT(bug)
    named = dict(a.state_dict().items())
    pick = lambda *parts: next(t for n, t in named.items() if all(p in n for p in parts))  # noqa: E731
    new = {"cut.weight": pick("patch_embeddings", "weight").flatten(1), "cut.bias": pick("patch_embeddings", "bias")}
    new |= {"cls": pick("cls_token")[0, 0], "places": pick("position_embeddings")[0]}
    for kind in ("weight", "bias"):
        new[f"norm.{kind}"], new[f"head.{kind}"] = named[f"vit.layernorm.{kind}"], named[f"classifier.{kind}"]
        for i in range(LAYERS):
            at = f".{i}."
            layer = [(n, t) for n, t in named.items() if at in n and n.endswith(kind)]
            q, k, v, o, up, down, before, after = _ordered(layer)
            if bug == "swapped_qk":
                q, k = k, q
            new[f"blocks.{i}.attention.in_proj_{kind}"] = torch.cat((q, k, v))
            new[f"blocks.{i}.attention.out_proj.{kind}"] = o
            down = down.clone()
            if bug == "transposed_weight" and i == 0 and kind == "weight":
                down = down.t().reshape(down.shape)
            new[f"blocks.{i}.up.{kind}"] = up[..., None] if kind == "weight" else up
            new[f"blocks.{i}.down.{kind}"] = down[..., None] if kind == "weight" else down
            new[f"blocks.{i}.before.{kind}"], new[f"blocks.{i}.after.{kind}"] = before, after
    b.load_state_dict(new)
    x = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed + 100))
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    return Case(Wrapped(a), b, x)


def _ordered(layer: list[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Query, key, value, output, up, down, norm before, norm after, whatever the release calls them."""
    wanted = (
        ("query", "q_proj"),
        ("key", "k_proj"),
        ("value", "v_proj"),
        ("attention.output", "o_proj", "attention.out"),
        ("intermediate", "fc1", "up"),
        ("fc2", ".output.dense", "down"),
        ("layernorm_before",),
        ("layernorm_after",),
    )
    found = []
    for names in wanted:
        found.append(next(t for n, t in layer if any(name in n for name in names) and all(t is not f for f in found)))
    return found
