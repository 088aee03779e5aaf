"""A recording in which every result is off by a rounding error of its own type: what rounding does to a model.

The signs are the same every time, and the run draws no random numbers of its own. What no implementation rounds stays
exact: numbers that are picked, filled in or cut off, and whole numbers (labels of regions, positions, counts), which
masks are made of by asking whether two are equal.
"""

from __future__ import annotations

from typing import Any

import torch

from torcheer.capture.torch.fine import FineSession, KeepingAtenLevel
from torcheer.capture.torch.inputs import Inputs
from torcheer.capture.torch.private import no_dispatch_mode, no_function_mode
from torcheer.capture.torch.saving import Keeper
from torcheer.capture.torch.tape import Tape, named_tensors
from torcheer.diff.graph import computes

Tensor = torch.Tensor
_EXACT = frozenset(
    "fill_ fill masked_fill masked_fill_ where max min amax amin aminmax maximum minimum topk sort kthvalue median"
    " cummax cummin gather scatter scatter_ masked_scatter masked_scatter_ masked_select clamp clamp_ clamp_min"
    " clamp_max sign sgn floor ceil round trunc floor_ ceil_ round_ trunc_ neg neg_ abs abs_ relu relu_ one_hot"
    " max_pool2d_with_indices max_pool3d_with_indices max_unpool2d ldexp nan_to_num".split()
)
_LOOKED_AT = 4  # numbers of a tensor: where these are not whole, the tensor is not
_PERIOD = 65521  # signs before they repeat; a prime, so that no axis of a tensor goes in step with them


class NoisyAtenLevel(KeepingAtenLevel):
    """The ATen level, changing what every computing operator returned by one unit in the last place, up or down."""

    def __init__(self, tape: Tape, keeper: Keeper | None) -> None:
        super().__init__(tape, keeper)
        generator = torch.Generator().manual_seed(1)
        self._signs = torch.randint(0, 2, (_PERIOD,), generator=generator) * 2 - 1
        self._factors: dict[torch.dtype, Tensor] = {}
        self._start = 0
        self._computes: dict[int, bool] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        known = self._computes.get(id(func))
        if known is None:
            known = self._computes[id(func)] = _rounds(str(func))
        if known and self.tape.is_forward and not self.tape.is_paused:
            with no_dispatch_mode(), no_function_mode(), torch.no_grad():
                for tensor in (out,) if type(out) is Tensor else [one for _, one in named_tensors(out)]:
                    self._disturb(tensor)
        return out

    def _disturb(self, tensor: Tensor) -> None:
        if not tensor.is_floating_point() or tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
            return
        if _is_whole(tensor):
            return
        # In the order of memory, which is dense in all but views.
        dense = tensor.permute(sorted(range(tensor.dim()), key=lambda axis: -tensor.stride()[axis]))
        if not dense.is_contiguous():
            tensor.mul_(self._factor(tensor.dtype, 1 + tensor.numel() % 977)[0])
            return
        flat, at = dense.view(-1), self._start
        self._start = (self._start + 7919) % (_PERIOD // 2)
        whole = flat.numel() // (_PERIOD - at)
        factor = self._factor(tensor.dtype, at).to(tensor.device)
        if whole:
            flat[: whole * len(factor)].view(whole, len(factor)).mul_(factor)
        rest = flat[whole * len(factor) :]
        if rest.numel():
            rest.mul_(factor[: rest.numel()])

    def _factor(self, dtype: torch.dtype, start: int) -> Tensor:
        known = self._factors.get(dtype)
        if known is None:
            known = self._factors[dtype] = (1 + self._signs * torch.finfo(dtype).eps).to(dtype)
        return known[start:]


def _rounds(function: str) -> bool:
    name = function.split(".")[1] if "." in function else function
    return computes(function) and name not in _EXACT


def _is_whole(tensor: Tensor) -> bool:
    """Whether all numbers are whole."""
    some = tensor[(slice(None, _LOOKED_AT),) + (0,) * (tensor.dim() - 1)] if tensor.dim() else tensor
    return bool((some == some.round()).all()) and bool((tensor == tensor.round()).all())


class NoisySession(FineSession):
    """Records one run with rounding errors put in."""

    def __init__(self, model: Any, inputs: Inputs) -> None:
        super().__init__(model, inputs, aten_level=NoisyAtenLevel)
