"""One recorded ATen call, made once more on given contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torcheer.capture.torch.tape import named_tensors
from torcheer.diff.arrays import Array, as_array
from torcheer.record.model import Op, Opaque, Ref

_NAMED: dict[str, Any] = {str(one): one for one in vars(torch).values() if isinstance(one, (torch.dtype, torch.layout))}
_NAMED |= {str(one): one for one in (torch.contiguous_format, torch.channels_last, torch.preserve_format)}


class _NotRecordedError(Exception):
    """An argument of the call is not in the record as it was."""


def call_again(op: Op, contents: Mapping[int, Array], device: torch.device) -> list[Array] | None:
    """The tensors that a call returns when it is given these contents in place of the values it read.

    None where the record does not say all that the call was given, or the call refuses them.
    """
    namespace, _, rest = op.function.partition(".")
    name, _, overload = rest.partition(".")
    function = getattr(getattr(getattr(torch.ops, namespace, None), name, None), overload or "default", None)
    if namespace != "aten" or function is None:
        return None
    try:
        with torch.no_grad():
            writes = function._schema.is_mutable
            args = [_argument(one, contents, device, writes) for one in op.args]
            kwargs = {key: _argument(one, contents, device, writes) for key, one in (op.kwargs or {}).items()}
            returned = function(*args, **kwargs)
    except (_NotRecordedError, RuntimeError, TypeError, ValueError, IndexError):
        # Shapes that do not fit are an answer too: it cannot be told.
        return None
    return [as_array(tensor) for _, tensor in named_tensors(returned)] or None


def _argument(value: Any, contents: Mapping[int, Array], device: torch.device, writes: bool) -> Any:
    if isinstance(value, Ref):
        if int(value) not in contents:
            raise _NotRecordedError
        array = contents[int(value)]
        return torch.from_numpy(array.copy() if writes or not array.flags.writeable else array).to(device)
    if isinstance(value, Opaque):
        raise _NotRecordedError
    if isinstance(value, (tuple, list)):
        return [_argument(one, contents, device, writes) for one in value]
    return _NAMED.get(value, value) if isinstance(value, str) else value
