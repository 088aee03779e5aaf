"""ConvNeXt: Hugging Face's against NHWC with grouped convolutions. Never used while developing."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

SIZES, DEPTHS = (8, 16), (1, 2)
BUGS = {
    "eps": Label("eps"),
    "gelu_kind": Label("gelu"),
    "activation": Label("gelu"),
    "missing_bias": Label("down_linear"),
    "padding": Label("depthwise"),
    "stride": Label("downsample"),
    "layer_scale": Label("block_end", missing_in_a="mul"),
    "missing_residual": Label("block_end depthwise downsample head_norm", missing_in_a="add"),
    "norm_order": Label("norm_order depthwise"),
    "missing_norm": Label("up_linear", missing_in_a="native_layer_norm"),
    "pool_kind": Label("pool"),
    "kernel_flipped": Label("depthwise"),
    "dropout_on": Label("dropout_on"),
    "missing_final_norm": Label("head_norm pool", missing_in_a="native_layer_norm"),
    "detached": Label("", tensor="stem"),
}


class ConvNeXt(nn.Module):
    def __init__(self, bug: str | None, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.bug = bug
        self.names: dict[str, str] = {}
        for name, value in state.items():
            own = name.replace("convnext.", "").replace(".", "_").replace("embeddings_patch_embeddings", "stem")
            self.register_parameter(own, nn.Parameter(value.clone()))
            self.names[name] = own

    def get(self, *parts: str) -> torch.Tensor:
        found = [getattr(self, own) for own in self.names.values() if all(part in own for part in parts)]
        assert len(found) == 1, (parts, len(found), list(self.names.values()))
        return found[0]

    def norm(self, x: torch.Tensor, *name: str, eps: float = 1e-6) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        spread = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(spread + eps) * self.get(*name, "weight") + self.get(*name, "bias")  # @eps

    def block(self, x: torch.Tensor, name: str, bug: str | None) -> torch.Tensor:
        kernel = self.get(name, "dwconv", "weight")
        if bug == "kernel_flipped":
            kernel = kernel.flip(-1)  # @depthwise
        pad = 2 if bug == "padding" else 3
        y = x.permute(0, 3, 1, 2)
        if bug == "norm_order":
            y = self.norm(x, name, "layernorm").permute(0, 3, 1, 2)  # @norm_order
        y = F.conv2d(y, kernel, self.get(name, "dwconv", "bias"), padding=pad, groups=x.shape[-1])  # @depthwise
        if bug == "padding":
            y = F.pad(y, (1, 1, 1, 1))  # @depthwise
        y = y.permute(0, 2, 3, 1)
        if bug not in ("norm_order", "missing_norm"):
            y = self.norm(y, name, "layernorm", eps=1e-2 if bug == "eps" else 1e-6)
        y = F.linear(y, self.get(name, "pwconv1", "weight"), self.get(name, "pwconv1", "bias"))  # @up_linear
        kind = "tanh" if bug == "gelu_kind" else "none"
        y = F.silu(y) if bug == "activation" else F.gelu(y, approximate=kind)  # @gelu
        if bug == "dropout_on":
            y = F.dropout(y, 0.1)  # @dropout_on
        y = y @ self.get(name, "pwconv2", "weight").t()  # @down_linear
        if bug != "missing_bias":
            y = y + self.get(name, "pwconv2", "bias")  # @down_linear
        if bug != "layer_scale":
            y = y * self.get(name, "layer_scale")  # @down_linear
        return y if bug == "missing_residual" else x + y  # @block_end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(x, self.get("stem", "weight"), self.get("stem", "bias"), stride=4).permute(0, 2, 3, 1)
        if self.bug == "detached":
            x = x.detach()
        x = self.norm(x, "embeddings_layernorm")
        x = self.block(x, "stages_0_layers_0", self.bug)
        x = self.norm(x, "stages_1_downsampling_layer_0").permute(0, 3, 1, 2)  # @downsample
        weight, bias = (
            self.get("stages_1_downsampling_layer_1", "weight"),
            self.get("stages_1_downsampling_layer_1", "bias"),
        )
        x = F.conv2d(x, weight, bias, stride=1 if self.bug == "stride" else 2).permute(0, 2, 3, 1)  # @downsample
        x = self.block(x, "stages_1_layers_0", None)
        x = self.block(x, "stages_1_layers_1", None)
        x = x.amax((1, 2)) if self.bug == "pool_kind" else x.mean((1, 2))  # @pool
        if self.bug != "missing_final_norm":
            x = F.layer_norm(
                x, (SIZES[-1],), self.get("layernorm_weight_final"), self.get("layernorm_bias_final"), 1e-12
            )  # @pool
        return F.linear(x, self.get("classifier", "weight"), self.get("classifier", "bias"))  # @head_norm


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).logits


def make(bug: str | None, seed: int) -> Case:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        num_stages=2, hidden_sizes=list(SIZES), depths=list(DEPTHS), num_labels=5, drop_path_rate=0.0, patch_size=4
    )
    a = lively(ConvNextForImageClassification(config), seed)
    state = {}
    for name, value in a.state_dict().items():
        final = name.startswith("convnext.layernorm.")
        state[f"layernorm_{name.rpartition('.')[2]}_final" if final else name] = value
    b = ConvNeXt(bug, state)
    a.train(seed % 2 == 1)
    b.train(seed % 2 == 1)
    return Case(Wrapped(a), b, torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(seed + 100)))
