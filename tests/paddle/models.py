"""Models that the tests of Paddle record."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import matmul  # bound here before any capture begins


class Convolutional(paddle.nn.Layer):
    """Convolution, normalisation, dropout, functional pooling, a residual sum, a write by index."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = paddle.nn.Conv2D(3, 4, 3, padding=1)
        self.bn = paddle.nn.BatchNorm2D(4)
        self.act = paddle.nn.ReLU()
        self.drop = paddle.nn.Dropout(0.3)
        self.fc = paddle.nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        y = self.act(self.bn(self.conv(x)))
        y = F.max_pool2d(y + 1, 2)
        y = self.drop(y.mean(axis=[2, 3]))
        y[0] = 0
        return self.fc(y)


class Shared(paddle.nn.Layer):
    """One layer used twice, and a list with a hole in the middle of the names."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = paddle.nn.Linear(4, 4)
        self.blocks = paddle.nn.LayerList([paddle.nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        x = self.fc(self.fc(x))
        for block in self.blocks:
            x = block(x) + x
        return {"out": x, "pair": (x.sum(), x * 2)}


class Recurrent(paddle.nn.Layer):
    """An LSTM, whose whole work is one operator."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = paddle.nn.LSTM(4, 5, num_layers=2)

    def forward(self, x: Any) -> Any:
        out, (hidden, cell) = self.lstm(x)
        return out, hidden, cell


class Attention(paddle.nn.Layer):
    """An encoder layer and functions that stand for operators under names of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = paddle.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1)
        self.weight = self.create_parameter([8, 8])
        self.act = F.sigmoid

    def forward(self, x: Any) -> Any:
        return self.act(matmul(self.encoder(x), self.weight))


class Doubled(paddle.autograd.PyLayer):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = paddle.tanh(x)
        ctx.save_for_backward(y)
        return y + y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (y,) = ctx.saved_tensor()
        return 2 * gradient * (1 - y * y)


class Custom(paddle.nn.Layer):
    """A PyLayer between operators, and writes through views."""

    def forward(self, x: Any) -> Any:
        y = Doubled.apply(x * 1)
        z = y.detach() * 1
        first, second = z[0], z[1]
        first.scale_(2.0)
        second.add_(first)
        return y.sum() + z.sum()


class Failing(paddle.nn.Layer):
    """Raises half way."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = paddle.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.fc(x)
        raise ValueError("half way")
