"""Port a small Paddle network to PyTorch: find the mistakes layer by layer, then carry the trained weights over.

python examples/paddle_to_torch.py     (needs: pip install 'torcheer[paddle]')
"""

import numpy as np
import paddle
import torch
import torch.nn.functional as F

import torcheer as tl


class PaddleTagger(paddle.nn.Layer):
    """The network that is there: it tags each word of a sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = paddle.nn.Embedding(100, 16)
        self.lstm = paddle.nn.LSTM(16, 16, direction="bidirect")
        self.norm = paddle.nn.LayerNorm(32)
        self.hidden = paddle.nn.Linear(32, 32)
        self.tags = paddle.nn.Linear(32, 5)

    def forward(self, words: paddle.Tensor) -> paddle.Tensor:
        states, _ = self.lstm(self.embedding(words))
        states = self.norm(states)
        states = states + paddle.nn.functional.gelu(self.hidden(states))
        return self.tags(states)


class FirstTry(torch.nn.Module):
    """The port, with two mistakes: another eps in ``norm`` and another gelu."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 16)
        self.lstm = torch.nn.LSTM(16, 16, bidirectional=True, batch_first=True)
        self.norm = torch.nn.LayerNorm(32, eps=1e-3)
        self.hidden = torch.nn.Linear(32, 32)
        self.tags = torch.nn.Linear(32, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(words))
        states = self.norm(states)
        states = states + F.gelu(self.hidden(states), approximate="tanh")
        return self.tags(states)


class SecondTry(FirstTry):
    """``norm`` put right."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)


class Port(SecondTry):
    """Both put right."""

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(words))
        states = self.norm(states)
        states = states + F.gelu(self.hidden(states))
        return self.tags(states)


def heading(text: str) -> None:
    print(f"\n---- {text}\n")


def main() -> None:
    paddle.seed(0)
    torch.manual_seed(0)
    layer = PaddleTagger()
    words = np.random.default_rng(0).integers(0, 100, (4, 7))

    for attempt in (FirstTry(), SecondTry(), Port()):
        heading(f"tl.autodiff(layer, {type(attempt).__name__}(), words)")
        tl.autodiff(layer, attempt, words, options={"atol": 1e-5})

    heading("Three steps of training with AdamW on both sides")
    port = Port()
    optimizers = (
        paddle.optimizer.AdamW(1e-3, parameters=layer.parameters(), weight_decay=0.01),
        torch.optim.AdamW(port.parameters(), 1e-3, weight_decay=0.01),
    )
    tl.autodiff(layer, port, words, optimizers=optimizers, loss_fn=lambda out: (out**2).mean(), steps=3)

    heading("tl.copy_weights(layer, port): the trained weights, tensor by tensor")
    print(tl.copy_weights(layer, port))
    out = layer(paddle.to_tensor(words)).numpy(), port(torch.from_numpy(words)).detach().numpy()
    print(f"Outputs differ by at most {abs(out[0] - out[1]).max():.1e}")

    heading("The Paddle run itself: history = tl.log_forward_pass(layer, words)")
    history = tl.log_forward_pass(layer, paddle.to_tensor(words))
    print(history)
    print(history["hidden"])


if __name__ == "__main__":
    main()
