"""A residual network of modules, NCHW, against functions on NHWC tensors with convolutions as matrix products."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import nn

from .case import Case, Label, lively

BUGS = {
    "eps": Label("eps"),
    "stride": Label("stride unfold"),
    "padding": Label("unfold stride"),
    "missing_bias": Label("linear"),
    "transposed_weight": Label("kernel product"),
    "activation": Label("activation"),
    "missing_activation": Label("block_end conv product unfold", missing_in_a="relu relu_ clamp_min"),
    "missing_residual": Label("block_end activation", missing_in_a="add add_"),
    "norm_order": Label("norm_order activation eps"),
    "pool_kind": Label("pool"),
    "wrong_reduction_axis": Label("mean"),
    "missing_norm": Label(
        "conv activation block_end",
        missing_in_a="native_batch_norm _native_batch_norm_legit_no_training _native_batch_norm_legit",
    ),
    "dropout_on": Label("dropout_on"),
    "channels_reversed": Label("entry"),
    "momentum": Label("", tensor="mean"),
    "detached": Label("", tensor="stem"),
}


class BlockA(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.down = (
            nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)) if stride > 1 else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.down is None else self.down(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class NetA(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(BlockA(8, 8, 1), BlockA(8, 16, 2))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.norm(self.stem(x))))
        x = F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1)
        return self.fc(x)


class NetB(nn.Module):
    """Everything is NHWC; a convolution is its patches times a matrix."""

    def __init__(self, bug: str | None, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.bug = bug
        self.names = {name: name.replace(".", "_") for name in state if "num_batches" not in name}
        for name, own in self.names.items():
            tensor = state[name].clone()
            if tensor.ndim == 4:
                if bug == "transposed_weight" and name == "blocks.0.conv2.weight":
                    tensor = tensor.transpose(0, 1)  # in and out exchanged
                tensor = tensor.permute(2, 3, 1, 0).reshape(-1, tensor.shape[0]).contiguous()
            if "running" in name:
                self.register_buffer(own, tensor)
            else:
                self.register_parameter(own, nn.Parameter(tensor))

    def get(self, name: str) -> torch.Tensor:
        return getattr(self, name.replace(".", "_"))

    def conv(self, x: torch.Tensor, name: str, size: int, stride: int, padding: int) -> torch.Tensor:
        weight = self.get(f"{name}.weight")  # @kernel
        x = F.pad(x, (0, 0, padding, padding, padding, padding))  # @unfold
        patches = x.unfold(1, size, stride).unfold(2, size, stride)  # @unfold
        patches = patches.permute(0, 1, 2, 4, 5, 3)
        b, h, w = patches.shape[:3]
        return patches.reshape(b, h, w, -1) @ weight  # @product @stride

    def norm(self, x: torch.Tensor, name: str, bug: str | None = None) -> torch.Tensor:
        mean, var = self.get(f"{name}.running_mean"), self.get(f"{name}.running_var")
        if self.training:
            flat = x.reshape(-1, x.shape[-1])
            now, spread = flat.mean(0), flat.var(0, unbiased=False)
            share = 0.3 if bug == "momentum" else 0.1
            with torch.no_grad():
                mean.mul_(1 - share).add_(share * now)
                var.mul_(1 - share).add_(share * flat.var(0))
            mean, var = now, spread
        scale = self.get(f"{name}.weight") / torch.sqrt(var + (1e-1 if bug == "eps" else 1e-5))  # @eps
        return (x - mean) * scale + self.get(f"{name}.bias")  # @eps

    def block(self, x: torch.Tensor, name: str, stride: int, bug: str | None) -> torch.Tensor:
        identity = x
        if stride > 1:
            identity = self.norm(self.conv(x, f"{name}.down.0", 1, stride, 0), f"{name}.down.1")
        out = (
            self.conv(x, f"{name}.conv1", 3, stride, 0 if bug == "padding" else 1)
            if bug != "padding"
            else F.pad(self.conv(x, f"{name}.conv1", 3, stride, 0), (0, 0, 1, 1, 1, 1))
        )  # @stride
        if bug == "norm_order":
            out = self.norm(F.relu(out), f"{name}.bn1")  # @norm_order
        else:
            if bug != "missing_norm":
                out = self.norm(out, f"{name}.bn1", bug)
            if bug != "missing_activation":
                out = F.leaky_relu(out, 0.1) if bug == "activation" else out.clamp(min=0)  # @activation
        if bug == "dropout_on":
            out = F.dropout(out, 0.2)  # @dropout_on
        out = self.norm(self.conv(out, f"{name}.conv2", 3, 1, 1), f"{name}.bn2")  # @conv
        if bug != "missing_residual":
            out = out + identity
        return torch.relu(out)  # @block_end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.permute(0, 2, 3, 1)
        if self.bug == "channels_reversed":
            x = x.flip(-1)  # @entry
        x = self.conv(x, "stem", 3, 1, 1)
        if self.bug == "detached":
            x = x.detach()
        x = torch.relu(self.norm(x, "norm"))
        pool = F.avg_pool2d if self.bug == "pool_kind" else F.max_pool2d
        x = pool(x.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1)  # @pool
        x = self.block(x, "blocks.0", 1, self.bug)
        if self.bug == "stride":
            x = self.block(x[:, ::2, ::2], "blocks.1", 2, None)  # @stride
        else:
            x = self.block(x, "blocks.1", 2, None)
        x = x.mean((1,)).amax(1) if self.bug == "wrong_reduction_axis" else x.mean((1, 2))  # @mean
        return F.linear(x, self.fc_weight, None if self.bug == "missing_bias" else self.fc_bias)  # @linear


def make(bug: str | None, seed: int) -> Case:
    a = lively(NetA(), seed)
    b = NetB(bug, a.state_dict())
    training = seed % 2 == 1 or bug == "momentum"
    a.train(training)
    b.train(training)
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(seed + 100))
    return Case(a, b, x)
