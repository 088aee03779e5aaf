"""Tensors as bytes of a safetensors file: which ones can be held, and how a shard is written.

Written here and not by ``safetensors.torch``, because that one imports torch and numpy, and refuses tensors
that share memory. Tensors are duck-typed: torch's and numpy's are known by the modules already loaded, since
whoever hands over a tensor has imported what made it.

The dtypes every safetensors since 0.5 knows are stored as they are. The others are stored under a dtype of
the same bytes (``stand_in``), and structure.json says what they stand for.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Sequence
from math import prod
from typing import Any, BinaryIO, NamedTuple

CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
}
AS_BYTES = frozenset({"float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"})
AS_PAIRS = {"complex32": "F16", "complex64": "F32", "complex128": "F64"}  # real and imaginary part, last axis
NUMPY_CODES = frozenset(CODES.values()) - {"BF16", "F8_E4M3", "F8_E5M2"}


class UnsavableError(ValueError):
    """A tensor whose contents cannot be written; the message is the reason, as in "it is sparse"."""


class Block(NamedTuple):
    """One tensor, ready to be written."""

    name: str
    code: str  # dtype in the file
    shape: tuple[int, ...]  # in the file
    stands_for: str | None  # dtype of the tensor, where the file's is a stand-in
    data: Any  # a buffer of its bytes
    owner: Any  # what must stay alive while the buffer is read

    @property
    def size_bytes(self) -> int:
        return ITEM_BYTES[self.code] * prod(self.shape)


def own_part(tensor: Any) -> Any:
    """What this process has of a tensor that is spread over several (DTensor), when it has arrived."""
    for kind, method in (("DTensor", "to_local"), ("AsyncCollectiveTensor", "wait")):
        if type(tensor).__name__ == kind and hasattr(tensor, method):
            tensor = getattr(tensor, method)()
    return tensor


def check_savable(tensor: Any) -> None:
    """Raise ``UnsavableError`` where the contents cannot be had. Nothing is copied."""
    if sys.byteorder != "little":
        raise UnsavableError("the machine is big-endian")
    if _is_from("torch", "Tensor", tensor):
        _check_torch(tensor)
    elif _is_from("numpy", "ndarray", tensor):
        if type(tensor) is not sys.modules["numpy"].ndarray:
            raise UnsavableError(f"it is a {type(tensor).__name__}, a kind of array that torcheer cannot store")
    elif _is_from("paddle", "Tensor", tensor):
        if not tensor.is_dense():
            raise UnsavableError("it is a sparse tensor of Paddle's")
    else:
        raise UnsavableError(f"it is a {type(tensor).__name__} and no tensor of torch, Paddle or numpy")
    stand_in(dtype_name(tensor), ())


def _is_from(module: str, cls: str, value: Any) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, cls))


def _check_torch(tensor: Any) -> None:
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise UnsavableError(f"it is a {type(tensor).__name__}, a kind of tensor that torcheer cannot store")
    if tensor.is_nested:
        raise UnsavableError("it is a nested tensor")
    if tensor.layout != torch.strided:
        raise UnsavableError(f"its layout is {str(tensor.layout).removeprefix('torch.')}")
    if tensor.device.type == "meta":
        raise UnsavableError("it is a meta tensor, which has no contents")
    if tensor.is_quantized:
        raise UnsavableError(f"it is quantized ({dtype_name(tensor)})")
    try:
        num_bytes = tensor.untyped_storage().nbytes()
    except RuntimeError:
        # Tensors inside vmap, grad and the like have no storage of their own.
        raise UnsavableError("it belongs to a function transform, which hides its memory") from None
    if tensor.numel() and not num_bytes:
        raise UnsavableError("its memory has been freed")


def dtype_name(tensor: Any) -> str:
    """``"float32"``, for a tensor of torch or Paddle as for one of numpy."""
    if _is_from("numpy", "ndarray", tensor):
        return str(tensor.dtype.name)
    return str(tensor.dtype).removeprefix("torch.").removeprefix("paddle.")


def num_bytes_of(tensor: Any) -> int:
    """Bytes a tensor will take in a shard."""
    if _is_from("numpy", "ndarray", tensor):
        return int(tensor.nbytes)
    # Paddle counts elements in a tensor.
    return int(tensor.numel()) * int(tensor.element_size())


def stand_in(dtype: str, shape: Sequence[int]) -> tuple[str, tuple[int, ...], str | None]:
    """Return dtype and shape in the file, and what they stand for if that is not the same."""
    if dtype in CODES:
        return CODES[dtype], tuple(shape), None
    if dtype in AS_BYTES:
        return "U8", tuple(shape), dtype
    if dtype in AS_PAIRS:
        return AS_PAIRS[dtype], (*shape, 2), dtype
    raise UnsavableError(f"the dtype {dtype} has no form in a safetensors file")


def to_block(name: str, tensor: Any) -> Block:
    """Bring a tensor into main memory in the order of its shape; ``UnsavableError`` where that fails."""
    check_savable(tensor)
    code, shape, stands_for = stand_in(dtype_name(tensor), tensor.shape)
    if _is_from("paddle", "Tensor", tensor):
        tensor = tensor.detach().cpu().contiguous().numpy()  # bfloat16 comes as the bits of its numbers
    if _is_from("numpy", "ndarray", tensor):
        dense = tensor.astype(tensor.dtype.newbyteorder("<"), order="C", copy=False)
        return Block(name, code, shape, stands_for, raw_bytes(dense), dense)
    try:
        # A conjugate or negative view has the bytes of what it views.
        dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    except RuntimeError as error:
        raise UnsavableError(f"its contents could not be copied ({str(error).splitlines()[0]})") from error
    return Block(name, code, shape, stands_for, raw_bytes(dense), dense)


def raw_bytes(dense: Any) -> Any:
    """The bytes of a dense tensor in main memory, without a copy. Valid as long as the tensor lives."""
    if _is_from("numpy", "ndarray", dense):
        return memoryview(dense.reshape(-1).view("u1"))
    # from_address of an empty tensor's null pointer is never read, having no bytes.
    return (ctypes.c_char * num_bytes_of(dense)).from_address(dense.data_ptr())


def write_shard(file: BinaryIO, blocks: Sequence[Block]) -> int:
    """Write blocks as one safetensors file; return its size in bytes."""
    # Large items first: every tensor then starts at a multiple of its item's size, as memory mapping needs.
    ordered = sorted(blocks, key=lambda block: -ITEM_BYTES[block.code])
    header: dict[str, Any] = {}
    end = 0
    for block in ordered:
        start, end = end, end + block.size_bytes
        header[block.name] = {"dtype": block.code, "shape": block.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for block in ordered:
        file.write(block.data)
    return 8 + len(text) + end
