"""Finds the models that a program trains, without a word from the program: those whose params an optimizer holds.

``nn.Module.__call__`` is replaced until a model is known for every optimizer. The first module that is called in
training and has params of an optimizer is the model: whatever is around it would have been called first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torcheer.capture.torch.modules import is_recording

Module = torch.nn.Module
_plain_add: Callable[..., None] = torch.optim.Optimizer.add_param_group


class ModelFinder:
    """Calls ``found(model, is_only)`` before the first call of each model, for as long as it is entered.

    is_only: whether no optimizer has params of another model, as far as it can be known then.
    """

    def __init__(self, found: Callable[[Module, bool], None]) -> None:
        self._found = found
        self._pending: dict[int, torch.Tensor] = {}  # params of optimizers whose model was not called yet
        self._plain_call: Any = None  # what was nn.Module.__call__, while ours is in its place

    def __enter__(self) -> ModelFinder:
        finder = self

        def add_param_group(self: torch.optim.Optimizer, param_group: dict[str, Any]) -> None:
            num_groups = len(self.param_groups)
            _plain_add(self, param_group)
            for group in self.param_groups[num_groups:]:
                finder._expect(group["params"])

        torch.optim.Optimizer.add_param_group = add_param_group  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        torch.optim.Optimizer.add_param_group = _plain_add  # type: ignore[method-assign]
        self._pending.clear()
        self._stop_looking()

    def _expect(self, params: list[torch.Tensor]) -> None:
        self._pending.update((id(param), param) for param in params)
        if self._plain_call is not None:
            return
        plain = self._plain_call = Module.__call__
        finder = self

        def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - it takes the place of that method
            if finder._pending and self.training and torch.is_grad_enabled() and finder._is_model(self):
                return type(self).__call__(self, *args, **kwargs)  # which is watched now
            return plain(self, *args, **kwargs)

        Module.__call__ = self._ours = __call__  # type: ignore[method-assign]

    def _is_model(self, module: Module) -> bool:
        own = [id(param) for param in module.parameters() if id(param) in self._pending]
        if not own or is_recording():
            return False
        for number in own:
            del self._pending[number]
        if not self._pending:
            self._stop_looking()
        self._found(module, not self._pending)
        return True

    def _stop_looking(self) -> None:
        # Somebody else's replacement on top of ours stays; ours then passes everything on.
        if self._plain_call is not None and Module.__call__ is self._ours:
            Module.__call__ = self._plain_call  # type: ignore[method-assign]
            self._plain_call = None
