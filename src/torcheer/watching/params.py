"""Rows of all parameters of a model at once: their memory stays where it is, so how to read it is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from torcheer.watching.sampling import IN_SAMPLE, Row, Sampler, count_bad, is_plain

Tensor = torch.Tensor


class Parameters:
    """Takes the rows of a model's parameters."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._known: list[tuple[int, int, torch.Size]] = []  # id, address in memory, shape
        self._strided: list[Tensor] = []
        self._whole: list[tuple[Tensor, Tensor]] = []  # the parameter as one row, where the sum of its squares goes
        self._lengths: list[int] = []
        self._in_sample: list[bool] = []  # whether the sample has all values
        self._slots = torch.empty(0)
        self._together: list[int] = []  # places of those that are read together
        self._others: list[int] = []  # and of those that are read one by one

    def rows(self, parameters: Iterable[Tensor]) -> dict[int, Row]:
        """id of a parameter → its row; each parameter once."""
        unique = self._ready(parameters)
        found: dict[int, Row] = {}
        if self._strided:
            values = torch.cat(self._strided).split(self._lengths)
            for whole, slot in self._whole:
                torch.dot(whole, whole, out=slot)
            squares = self._slots.tolist() if self._slots.device.type == "cpu" else list(self._slots.clone())
            for place, sample, square, is_whole in zip(self._together, values, squares, self._in_sample, strict=True):
                one = unique[place]
                row = found[id(one)] = Row(sample, IN_SAMPLE if is_whole else square, one.numel())
                if not is_whole and isinstance(square, float) and not math.isfinite(square):
                    count_bad(row, one.detach())
        for place in self._others:
            row_or_none = self._sampler.row(unique[place])
            if row_or_none is not None:
                found[id(unique[place])] = row_or_none
        return found

    def samples(self, parameters: Iterable[Tensor]) -> dict[int, Tensor]:
        """id of a parameter → the values that its row would have, and nothing more."""
        unique = self._ready(parameters)
        found: dict[int, Tensor] = {}
        if self._strided:
            values = torch.cat(self._strided).split(self._lengths)
            found = {id(unique[place]): sample for place, sample in zip(self._together, values, strict=True)}
        for place in self._others:
            row = self._sampler.row(unique[place])
            if row is not None:
                found[id(unique[place])] = row.values
        return found

    def _ready(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        unique = list({id(one): one for one in parameters}.values())
        now = [(id(one), one.data_ptr() if type(one) is torch.nn.Parameter else 0, one.shape) for one in unique]
        if now != self._known:
            self._prepare(unique)
            self._known = now
        return unique

    def _prepare(self, unique: list[Tensor]) -> None:
        device = unique[0].device if unique else torch.device("cpu")
        self._others = [
            place for place, one in enumerate(unique)
            if not (is_plain(one) and one.dtype is torch.float32 and one.is_contiguous() and one.numel()
                    and one.device == device and one.untyped_storage().nbytes())
        ]  # fmt: skip
        self._together = [place for place in range(len(unique)) if place not in set(self._others)]
        together = [unique[place].detach() for place in self._together]
        plans = [self._sampler.plan(one.shape) for one in together]
        self._strided = [one.as_strided(size, stride) for one, (size, stride, _) in zip(together, plans, strict=True)]
        self._lengths = [size[0] for size, _, _ in plans]
        self._in_sample = [size[0] == num for size, _, num in plans]
        self._slots = torch.zeros(len(together), device=device)
        self._whole = [
            (one.view(-1), slot)
            for one, slot, is_whole in zip(together, self._slots.unbind(), self._in_sample, strict=True)
            if not is_whole
        ]
