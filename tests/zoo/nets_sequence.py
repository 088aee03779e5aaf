"""Networks for sequences, written out: recurrent, attentive, state-space, mixtures of experts, memories."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.zoo.specimen import quick


class CharLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(16, 20)
        self.lstm = nn.LSTM(8, 8, 2, dropout=0.2, bidirectional=True, batch_first=True)

    def forward(self, ids: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, state = self.lstm(self.embed(ids))
        return self.head(out), state


class PackedGRU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 8, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]


class ElmanByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.around = nn.Linear(4, 8), nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.new_zeros(len(x), 8)
        for step in x.unbind(1):
            hidden = torch.tanh(self.inside(step) + self.around(hidden))
        return hidden


class Seq2Seq(nn.Module):
    """Attention over an encoder; greedy decoding that feeds its own output back."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encoder, self.cell = nn.Embedding(12, 8), nn.GRU(8, 8, batch_first=True), nn.GRUCell(16, 8)
        self.head = nn.Linear(8, 12)

    def forward(self, ids: Tensor) -> Tensor:
        memory, hidden = self.encoder(self.embed(ids))
        hidden, token, outputs = hidden[0], torch.ones(len(ids), dtype=torch.long), []
        for _ in range(4):
            weights = torch.bmm(memory, hidden[..., None]).softmax(1)
            hidden = self.cell(torch.cat([self.embed(token), (weights * memory).sum(1)], 1), hidden)
            outputs.append(self.head(hidden))
            token = outputs[-1].argmax(1)
        return torch.stack(outputs, 1)


class NeuralTuringMachine(nn.Module):
    """A memory that is written in place of itself, addressed by content."""

    def __init__(self) -> None:
        super().__init__()
        self.control, self.interface = nn.LSTMCell(9, 16), nn.Linear(16, 5 + 5 + 5 + 1)

    def forward(self, x: Tensor) -> Tensor:
        memory = torch.full((len(x), 6, 5), 1e-3)
        state, read, out = None, x.new_zeros(len(x), 5), []
        for step in x.unbind(1):
            state = self.control(torch.cat([step, read], 1), state)
            key, erase, add, strength = self.interface(state[0]).split([5, 5, 5, 1], 1)
            weights = (F.cosine_similarity(memory, key[:, None], dim=-1) * F.softplus(strength)).softmax(1)[..., None]
            memory = memory * (1 - weights * erase.sigmoid()[:, None]) + weights * add[:, None]
            read = (weights * memory).sum(1)
            out.append(read)
        return torch.stack(out, 1)


class TemporalConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(norm(nn.Conv1d(4, 4, 3, dilation=2**i)) for i in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            x = F.relu(layer(F.pad(x, (2 * 2**place, 0)))) + x
        return x


class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(4))
        self.stem, self.head = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.stem(x), 0
        for gate in self.gates:
            left, right = gate(x).chunk(2, 1)
            inner = torch.tanh(left) * right.sigmoid()
            x = x[..., -inner.shape[-1] :] + inner
            skips = inner if isinstance(skips, int) else skips[..., -inner.shape[-1] :] + inner
        return self.head(F.relu(skips))


class VanillaTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight
        self.net = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.net(self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True))


class GroupedQueryAttention(nn.Module):
    """Rotary positions, grouped heads, a gated feed-forward, root-mean-square norms."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q, self.kv, self.o = nn.RMSNorm(16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(32, 16)

    @staticmethod
    def rotate(x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[-2])[:, None] / 100 ** (torch.arange(0, 4, 2) / 4)
        turned = torch.view_as_complex(x.unflatten(-1, (2, 2))) * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(x)
        q = self.q(inner).unflatten(-1, (4, 4)).transpose(1, 2)
        k, v = self.kv(inner).unflatten(-1, (2, 2, 4)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(out.transpose(1, 2).flatten(2))
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class LinearAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        states = torch.einsum("btd,bte->btde", k, v).cumsum(1)
        return torch.einsum("btd,btde->bte", q, states) / (q * k.cumsum(1)).sum(-1, keepdim=True)


class WindowAttention(nn.Module):
    """Local attention by unfolding, with a relative bias."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(8, 24), nn.Parameter(torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = (F.pad(part, (0, 0, 2, 2)).unfold(1, 5, 1) for part in (k, v))
        scores = torch.einsum("btd,btdw->btw", q, k) / math.sqrt(8) + self.bias
        return torch.einsum("btw,btdw->btd", scores.softmax(-1), v)


class SwitchMoE(nn.Module):
    """Each token goes to one expert; an expert may get none."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(8, 4), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        flat = x.flatten(0, 1)
        weights = self.router(flat).softmax(-1)
        weight, chosen = weights.max(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            tokens = (chosen == number).nonzero()[:, 0]
            if len(tokens):
                out.index_add_(0, tokens, expert(flat[tokens]) * weight[tokens, None])
        balance = (weights.mean(0) * F.one_hot(chosen, 4).float().mean(0)).sum()
        return out.view_as(x), balance


class S4(nn.Module):
    """A state space as one long convolution, in the frequency domain."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.inside, self.outside = (nn.Parameter(torch.randn(8, 4) * 0.5) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        powers = (-self.decay.exp())[..., None] * torch.arange(length)
        kernel = (self.inside * self.outside)[..., None].mul(powers.exp()).sum(1)
        spectrum = torch.fft.rfft(x.mT, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
        return torch.fft.irfft(spectrum, n=2 * length)[..., :length].mT


class SelectiveScan(nn.Module):
    """Mamba's recurrence, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.step = nn.Linear(8, 9), nn.Parameter(torch.zeros(8))
        self.decay = nn.Parameter(torch.rand(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        state, out = x.new_zeros(len(x), 8, 4), []
        for token in x.unbind(1):
            b, c, rate = self.project(token).split([4, 4, 1], 1)
            step = F.softplus(rate + self.step)[..., None]
            state = state * (-step * self.decay.exp()).exp() + step * b[:, None] * token[..., None]
            out.append((state * c[:, None]).sum(-1))
        return torch.stack(out, 1)


class PointerNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.cell, self.point = nn.Linear(2, 8), nn.LSTMCell(8, 8), nn.Bilinear(8, 8, 1)

    def forward(self, cities: Tensor) -> Tensor:
        memory = self.encode(cities)
        mask, current, state, tour = torch.zeros(memory.shape[:2], dtype=torch.bool), memory.mean(1), None, []
        for _ in range(cities.shape[1]):
            state = self.cell(current, state)
            scores = self.point(memory, state[0][:, None].expand_as(memory).contiguous())[..., 0]
            best = scores.masked_fill(mask, -torch.inf).argmax(1)
            mask = mask.scatter(1, best[:, None], True)
            current = memory[torch.arange(len(memory)), best]
            tour.append(current)
        return torch.stack(tour, 1)


class TextCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(20, 8, mode="mean")
        self.words, self.convs = nn.Embedding(20, 8, padding_idx=0), nn.ModuleList(nn.Conv1d(8, 4, k) for k in (2, 3))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids).mT
        return torch.cat([*(F.relu(one(x)).amax(-1) for one in self.convs), self.embed(ids)], 1)


class CTCSpeech(nn.Module):
    """Spectrogram inside the model; the loss is part of the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.lstm, self.head = nn.LSTM(33, 8, batch_first=True), nn.Linear(8, 6)

    def forward(self, sound: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        spectrum = torch.stft(sound, 64, 32, window=self.window, return_complex=True).abs().mT
        scores = self.head(self.lstm(spectrum.log1p())[0]).log_softmax(-1)
        lengths = torch.full((len(sound),), scores.shape[1])
        return scores, F.ctc_loss(scores.transpose(0, 1), targets, lengths, torch.full_like(lengths, targets.shape[1]))


class AdaptiveTime(nn.Module):
    """Ponders until it is sure: the number of passes depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.halt = nn.GRUCell(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden, sure = torch.zeros_like(x), 0.0
        while sure < 1.5:
            hidden = self.cell(x, hidden)
            sure += self.halt(hidden).sigmoid().mean().item()
        return hidden


def _ids(*shape: int) -> Tensor:
    return torch.randint(1, 12, shape)


SPECIMENS = [
    *quick(
        "recurrent",
        CharLSTM=lambda: (CharLSTM(), {"ids": _ids(2, 7)}),
        PackedGRU=lambda: (PackedGRU(), {"x": torch.randn(3, 5, 6), "lengths": torch.tensor([2, 5, 3])}),
        ElmanByHand=lambda: (ElmanByHand(), {"x": torch.randn(2, 5, 4)}),
        Seq2Seq=lambda: (Seq2Seq(), {"ids": _ids(2, 5)}),
        NeuralTuringMachine=lambda: (NeuralTuringMachine(), {"x": torch.randn(2, 4, 4)}),
        PointerNet=lambda: (PointerNet(), {"cities": torch.rand(2, 5, 2)}),
        AdaptiveTime=lambda: (AdaptiveTime(), {"x": torch.randn(3, 4)}),
    ),
    *quick(
        "audio",
        TemporalConvNet=lambda: (TemporalConvNet(), {"x": torch.randn(2, 4, 20)}),
        WaveNet=lambda: (WaveNet(), {"x": torch.randn(1, 1, 40)}),
        CTCSpeech=lambda: (CTCSpeech(), {"sound": torch.randn(2, 640), "targets": torch.randint(1, 6, (2, 4))}),
    ),
    *quick(
        "attention",
        VanillaTransformer=lambda: (VanillaTransformer(), {"source": _ids(2, 6), "target": _ids(2, 5)}),
        GroupedQueryAttention=lambda: (GroupedQueryAttention(), {"x": torch.randn(2, 6, 16)}),
        LinearAttention=lambda: (LinearAttention(), {"x": torch.randn(2, 6, 8)}),
        WindowAttention=lambda: (WindowAttention(), {"x": torch.randn(2, 6, 8)}),
        SwitchMoE=lambda: (SwitchMoE(), {"x": torch.randn(2, 5, 8)}),
        TextCNN=lambda: (TextCNN(), {"ids": _ids(2, 9)}),
    ),
    *quick(
        "state space",
        S4=lambda: (S4(), {"x": torch.randn(2, 12, 8)}),
        SelectiveScan=lambda: (SelectiveScan(), {"x": torch.randn(2, 5, 8)}),
    ),
]
