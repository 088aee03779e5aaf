"""The same networks written for Paddle and for PyTorch, as by hand. ``bug`` plants a mistake in Paddle's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle
import torch

pnn, tnn = paddle.nn, torch.nn
pF, tF = paddle.nn.functional, torch.nn.functional


# -- a BERT ------------------------------------------------------------------------------------------------------


class PaddleAttention(pnn.Layer):
    def __init__(self, size: int, heads: int, bug: str) -> None:
        super().__init__()
        self.heads, self.bug = heads, bug
        self.query, self.key, self.value = (pnn.Linear(size, size) for _ in range(3))
        self.dense = pnn.Linear(size, size)

    def forward(self, x: Any, mask: Any) -> Any:
        batch, length, size = x.shape
        shape = [batch, length, self.heads, size // self.heads]
        q, k, v = (layer(x).reshape(shape).transpose([0, 2, 1, 3]) for layer in (self.query, self.key, self.value))
        scores = paddle.matmul(q, k, transpose_y=True)
        if self.bug != "missing scale":
            scores = scores * (size // self.heads) ** -0.5
        scores = scores + (1.0 - mask[:, None, None, :]) * (-1.0 if self.bug == "mask value" else -10000.0)
        weights = pF.softmax(scores, axis=2 if self.bug == "softmax axis" else -1)
        return self.dense(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([batch, length, size]))


class PaddleBlock(pnn.Layer):
    def __init__(self, size: int, heads: int, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.attention = PaddleAttention(size, heads, bug)
        self.norm1 = pnn.LayerNorm(size, epsilon=1e-3 if bug == "layernorm eps" else 1e-5)
        self.up = pnn.Linear(size, 4 * size, bias_attr=False if bug == "missing bias" else None)
        self.down = pnn.Linear(4 * size, size)
        self.norm2 = pnn.LayerNorm(size)

    def forward(self, x: Any, mask: Any) -> Any:
        x = self.norm1(x + self.attention(x, mask))
        middle = pF.gelu(self.up(x), approximate=self.bug == "gelu kind")
        return self.norm2(self.down(middle) + (0 if self.bug == "missing residual" else x))


class PaddleBert(pnn.Layer):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        padding = 0 if bug == "padding_idx" else None
        self.words = pnn.Embedding(50, 32, padding_idx=padding)
        self.positions = pnn.Embedding(16, 32)
        self.norm = pnn.LayerNorm(32)
        self.drop = pnn.Dropout(0.5, mode="downscale_in_infer" if bug == "dropout mode" else "upscale_in_train")
        self.blocks = pnn.LayerList([PaddleBlock(32, 4, bug if place == 1 else "") for place in range(2)])
        self.pooler = pnn.Linear(32, 32)

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.words(ids) + self.positions(paddle.arange(ids.shape[1]))
        x = self.drop(self.norm(x))
        for block in self.blocks:
            x = block(x, mask)
        return x, paddle.tanh(self.pooler(x[:, 0]))


class TorchAttention(tnn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (tnn.Linear(size, size) for _ in range(3))
        self.dense = tnn.Linear(size, size)

    def forward(self, x: Any, mask: Any) -> Any:
        batch, length, size = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / (size // self.heads) ** 0.5
        scores = scores + (1.0 - mask[:, None, None, :]) * -10000.0
        return self.dense((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, size))


class TorchBlock(tnn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = TorchAttention(size, heads)
        self.norm1 = tnn.LayerNorm(size)
        self.up = tnn.Linear(size, 4 * size)
        self.down = tnn.Linear(4 * size, size)
        self.norm2 = tnn.LayerNorm(size)

    def forward(self, x: Any, mask: Any) -> Any:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(tF.gelu(self.up(x))))


class TorchBert(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tnn.Embedding(50, 32)
        self.positions = tnn.Embedding(16, 32)
        self.norm = tnn.LayerNorm(32)
        self.drop = tnn.Dropout(0.5)
        self.blocks = tnn.ModuleList([TorchBlock(32, 4) for _ in range(2)])
        self.pooler = tnn.Linear(32, 32)

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.drop(self.norm(self.words(ids) + self.positions(torch.arange(ids.shape[1]))))
        for block in self.blocks:
            x = block(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


# -- a ResNet ----------------------------------------------------------------------------------------------------


class PaddleBasic(pnn.Layer):
    def __init__(self, given: int, made: int, stride: int, bug: str) -> None:
        super().__init__()
        self.bug = bug
        mode = "reflect" if bug == "padding" else "zeros"
        momentum = 0.1 if bug == "momentum" else 0.9
        attr = paddle.ParamAttr(initializer=pnn.initializer.Constant(0.5)) if bug == "batchnorm init" else None
        self.conv1 = pnn.Conv2D(given, made, 3, stride, 1, bias_attr=False)
        self.bn1 = pnn.BatchNorm2D(made, momentum=momentum, epsilon=1e-3 if bug == "eps" else 1e-5)
        self.relu = pnn.ReLU()
        self.conv2 = pnn.Conv2D(made, made, 3, padding=1, bias_attr=False, padding_mode=mode)
        self.bn2 = pnn.BatchNorm2D(made, weight_attr=attr)
        self.downsample = None
        if stride != 1 or given != made:
            self.downsample = pnn.Sequential(pnn.Conv2D(given, made, 1, stride, bias_attr=False), pnn.BatchNorm2D(made))

    def forward(self, x: Any) -> Any:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.bug == "detached residual":
            identity = identity.detach()
        return self.relu(out + identity)


class PaddleResNet(pnn.Layer):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.conv1 = pnn.Conv2D(3, 8, 7, 2, 3, bias_attr=False)
        self.bn1 = pnn.BatchNorm2D(8)
        self.relu = pnn.ReLU()
        self.maxpool = pnn.MaxPool2D(3, 2, 1)
        self.layer1 = pnn.Sequential(PaddleBasic(8, 8, 1, ""), PaddleBasic(8, 8, 1, bug))
        self.layer2 = pnn.Sequential(PaddleBasic(8, 16, 2, ""))
        self.avgpool = pnn.AdaptiveAvgPool2D(1)
        self.fc = pnn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(paddle.flatten(self.avgpool(x), 1))


class TorchBasic(tnn.Module):
    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1 = tnn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.bn1 = tnn.BatchNorm2d(made)
        self.relu = tnn.ReLU(inplace=True)
        self.conv2 = tnn.Conv2d(made, made, 3, padding=1, bias=False)
        self.bn2 = tnn.BatchNorm2d(made)
        self.downsample = None
        if stride != 1 or given != made:
            self.downsample = tnn.Sequential(tnn.Conv2d(given, made, 1, stride, bias=False), tnn.BatchNorm2d(made))

    def forward(self, x: Any) -> Any:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class TorchResNet(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = tnn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = tnn.BatchNorm2d(8)
        self.relu = tnn.ReLU(inplace=True)
        self.maxpool = tnn.MaxPool2d(3, 2, 1)
        self.layer1 = tnn.Sequential(TorchBasic(8, 8, 1), TorchBasic(8, 8, 1))
        self.layer2 = tnn.Sequential(TorchBasic(8, 16, 2))
        self.avgpool = tnn.AdaptiveAvgPool2d(1)
        self.fc = tnn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


# -- a U-Net -----------------------------------------------------------------------------------------------------


class PaddleDouble(pnn.Layer):
    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = pnn.Conv2D(given, made, 3, padding=1), pnn.GroupNorm(2, made)
        self.conv2, self.norm2 = pnn.Conv2D(made, made, 3, padding=1), pnn.InstanceNorm2D(made)
        self.act = pnn.LeakyReLU(0.1)

    def forward(self, x: Any) -> Any:
        return self.act(self.norm2(self.conv2(self.act(self.norm1(self.conv1(x))))))


class PaddleUp(pnn.Layer):
    def __init__(self, given: int, made: int, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.reduce = pnn.Conv2D(given, made, 1)
        self.convs = PaddleDouble(2 * made, made)

    def forward(self, x: Any, skip: Any) -> Any:
        x = pF.interpolate(x, scale_factor=2, mode="bilinear", align_corners=self.bug == "align_corners")
        x = self.reduce(x)
        return self.convs(paddle.concat([x, skip] if self.bug == "order of concatenation" else [skip, x], axis=1))


class PaddleUNet(pnn.Layer):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.down1, self.down2, self.down3 = PaddleDouble(3, 4), PaddleDouble(4, 8), PaddleDouble(8, 16)
        self.pool = pnn.MaxPool2D(2)
        self.up1 = PaddleUp(16, 8, bug)
        self.up2 = pnn.Conv2DTranspose(8, 4, 2, 2)
        self.last = PaddleDouble(8, 4)
        self.out = pnn.Conv2D(4, 2, 1)

    def forward(self, x: Any) -> Any:
        one = self.down1(x)
        two = self.down2(self.pool(one))
        x = self.up1(self.down3(self.pool(two)), two)
        return self.out(self.last(paddle.concat([one, self.up2(x)], axis=1)))


class TorchDouble(tnn.Module):
    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = tnn.Conv2d(given, made, 3, padding=1), tnn.GroupNorm(2, made)
        self.conv2, self.norm2 = tnn.Conv2d(made, made, 3, padding=1), tnn.InstanceNorm2d(made, affine=True)
        self.act = tnn.LeakyReLU(0.1)

    def forward(self, x: Any) -> Any:
        return self.act(self.norm2(self.conv2(self.act(self.norm1(self.conv1(x))))))


class TorchUp(tnn.Module):
    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.reduce = tnn.Conv2d(given, made, 1)
        self.convs = TorchDouble(2 * made, made)

    def forward(self, x: Any, skip: Any) -> Any:
        x = self.reduce(tF.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False))
        return self.convs(torch.cat([skip, x], 1))


class TorchUNet(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.down3 = TorchDouble(3, 4), TorchDouble(4, 8), TorchDouble(8, 16)
        self.pool = tnn.MaxPool2d(2)
        self.up1 = TorchUp(16, 8)
        self.up2 = tnn.ConvTranspose2d(8, 4, 2, 2)
        self.last = TorchDouble(8, 4)
        self.out = tnn.Conv2d(4, 2, 1)

    def forward(self, x: Any) -> Any:
        one = self.down1(x)
        two = self.down2(self.pool(one))
        x = self.up1(self.down3(self.pool(two)), two)
        return self.out(self.last(torch.cat([one, self.up2(x)], 1)))


# -- an LSTM -----------------------------------------------------------------------------------------------------


class PaddleLSTM(pnn.Layer):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.embed = pnn.Embedding(30, 12)
        self.lstm = pnn.LSTM(12, 16, num_layers=2, direction="bidirect")
        if bug == "order of definition":
            self.fc2, self.fc1 = pnn.Linear(32, 32), pnn.Linear(32, 32)
        else:
            self.fc1, self.fc2 = pnn.Linear(32, 32), pnn.Linear(32, 32)
        self.act = pnn.GELU()

    def forward(self, ids: Any) -> Any:
        out, (hidden, _) = self.lstm(self.embed(ids))
        return self.fc2(self.act(self.fc1(out.mean(axis=1)))), hidden


class TorchLSTM(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = tnn.Embedding(30, 12)
        self.lstm = tnn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.fc1, self.fc2 = tnn.Linear(32, 32), tnn.Linear(32, 32)
        self.act = tnn.GELU()

    def forward(self, ids: Any) -> Any:
        out, (hidden, _) = self.lstm(self.embed(ids))
        return self.fc2(self.act(self.fc1(out.mean(1)))), hidden


# -- an encoder from the libraries' own layers -------------------------------------------------------------------


class PaddleEncoder(pnn.Layer):
    def __init__(self, bug: str = "") -> None:
        super().__init__()
        layer = pnn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu")
        self.token = self.create_parameter([1, 1, 16])
        self.encoder = pnn.TransformerEncoder(layer, 2)
        self.head = pnn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        x = paddle.concat([self.token.expand([x.shape[0], -1, -1]), x], axis=1)
        return self.head(self.encoder(x)[:, 0])


class TorchEncoder(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = tnn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.token = tnn.Parameter(torch.zeros(1, 1, 16))
        self.encoder = tnn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = tnn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.head(self.encoder(x)[:, 0])


def _sentences() -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(0)
    ids = source.integers(1, 50, (3, 9))
    ids[:, -2:] = 0
    mask = np.ones((3, 9), "float32")
    mask[:, -2:] = 0
    return ids, mask


def _images(size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, 3, size, size)).astype("float32")


class ModelPair(NamedTuple):
    """One network in both frameworks."""

    name: str
    paddle: Callable[..., Any]
    torch: Callable[[], Any]
    inputs: Callable[[], Any]

    def make(self, bug: str = "") -> tuple[Any, Any]:
        """Both models, in the mode in which they are compared."""
        layer, module = self.paddle(bug), self.torch()
        if self.name == "bert":  # it has dropout
            layer.eval()
            module.eval()
        return layer, module


MODEL_PAIRS = {
    pair.name: pair
    for pair in (
        ModelPair("bert", PaddleBert, TorchBert, _sentences),
        ModelPair("resnet", PaddleResNet, TorchResNet, lambda: _images(32)),
        ModelPair("unet", PaddleUNet, TorchUNet, lambda: _images(16)),
        ModelPair("lstm", PaddleLSTM, TorchLSTM, lambda: np.random.default_rng(0).integers(0, 30, (4, 6))),
        ModelPair("encoder", PaddleEncoder, TorchEncoder, lambda: _images(16)[:, 0]),
    )
}
