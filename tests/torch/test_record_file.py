"""Tensors come back from disk with the same bits, shape and dtype, or it is said why they do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import torcheer as tl
from tests.unit.make_record import make_record
from torcheer.errors import NotSavedError, RecordFileError
from torcheer.record.file import TensorWriter, read, write
from torcheer.record.file_tensors import FilePayloads

DTYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
    "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
]  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def random_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Any bit pattern, so NaNs with payloads, infinities and negative zeros too."""
    count = torch.Size(shape).numel()
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8).view(dtype).reshape(shape)


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal in dtype, shape and every bit."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    first, second = (t.detach().resolve_conj().resolve_neg().contiguous() for t in (first, second))
    return bytes(first.untyped_storage())[: _end(first)] == bytes(second.untyped_storage())[: _end(second)] or (
        first.flatten().view(torch.uint8).equal(second.flatten().view(torch.uint8))
    )


def _end(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def saved(tensors: dict[str, Any], path: Path) -> FilePayloads:
    """Write tensors and open them again."""
    return read(write(make_record(), tensors, path / "run.tch"))[1]


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_bit_by_bit(name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this torch has no {name}")
    shapes = [(), (5,), (2, 3, 4), (0,), (3, 0, 2), (1, 1)]
    tensors = {f"value.{i}": random_bits(dtype, shape) for i, shape in enumerate(shapes)}
    payloads = saved(tensors, tmp_path)
    assert payloads.unsaved == {}
    for key, tensor in tensors.items():
        assert same(payloads[key], tensor), key


def test_all_dtypes_in_one_file(tmp_path: Path) -> None:
    """Each starts where its items are aligned, whatever came before."""
    found = [getattr(torch, name) for name in DTYPES if hasattr(torch, name)]
    tensors = {f"value.{i}": random_bits(dtype, (3,)) for i, dtype in enumerate(found)}
    payloads = saved(tensors, tmp_path)
    for key, tensor in tensors.items():
        assert same(payloads[key], tensor), key
        assert payloads[key].data_ptr() % tensor.element_size() == 0 or tensor.is_complex()


def test_other_tools_can_open_the_files(tmp_path: Path) -> None:
    tensors = {
        "value.1": torch.randn(3, 4),
        "value.2": torch.arange(3),
        "value.3": torch.tensor(2.0).bfloat16(),
    }
    saved(tensors, tmp_path)
    loaded = load_file(tmp_path / "run.tch" / "tensors-00001.safetensors")
    assert {name: same(tensor, tensors[name]) for name, tensor in loaded.items()} == dict.fromkeys(tensors, True)


def odd_views() -> dict[str, torch.Tensor]:
    base = torch.arange(24.0).reshape(2, 3, 4)
    z = torch.complex(torch.randn(3, 2), torch.randn(3, 2))
    image = torch.randn(2, 3, 4, 5)
    return {
        "transposed": base.permute(2, 0, 1),
        "strided": base[:, ::2, 1:3],
        "expanded": torch.randn(3, 1).expand(3, 5),
        "offset": base[1, 1:],
        "channels_last": image.to(memory_format=torch.channels_last),
        "conjugate": z.conj(),
        "conjugate_transposed": z.mH,
        "imaginary_of_conjugate": z.conj().imag,
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "requires_grad": torch.randn(3, requires_grad=True) * 2,
        "with_bits": torch.tensor([float("nan"), float("inf"), -0.0]),
        "flipped": base.flip(0),
        "scalar_view": base[0, 0, 3],
    }


def test_views_are_stored_as_what_they_show(tmp_path: Path) -> None:
    tensors = odd_views()
    payloads = saved(tensors, tmp_path)
    for key, tensor in tensors.items():
        assert same(payloads[key], tensor), key
        assert not payloads[key].requires_grad
        assert payloads[key].is_contiguous()


def test_tensors_that_share_memory_are_stored_each(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    tensors = {
        "whole": base,
        "again": base,
        "part": base[2:4],
        "view": base.view(2, 3),
        "param": base.detach(),
    }
    payloads = saved(tensors, tmp_path)
    for key, tensor in tensors.items():
        assert same(payloads[key], tensor), key
    payloads["whole"][3] = 100
    assert payloads["again"][3] == 3


class Wrapper(torch.Tensor):
    """A subclass as people write them."""


def no_contents() -> dict[str, tuple[Any, str]]:
    freed = torch.randn(4)
    freed.untyped_storage().resize_(0)
    found: dict[str, tuple[Any, str]] = {
        "sparse": (torch.eye(3).to_sparse(), "its layout is sparse_coo"),
        "csr": (torch.ones(2, 2).to_sparse_csr(), "its layout is sparse_csr"),
        "meta": (torch.empty(3, device="meta"), "it is a meta tensor, which has no contents"),
        "wrapper": (
            torch.randn(3).as_subclass(Wrapper),
            "it is a Wrapper, a kind of tensor that torcheer cannot store",
        ),
        "freed": (freed, "its memory has been freed"),
        "number": (3.5, "it is a float and no tensor of torch, Paddle or numpy"),
        "objects": (np.array([None]), "the dtype object has no form in a safetensors file"),
        "masked": (np.ma.array([1.0]), "it is a MaskedArray, a kind of array that torcheer cannot store"),
    }
    return found


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:Sparse invariant checks")
def test_what_has_no_contents_is_listed_with_the_reason(tmp_path: Path) -> None:
    cases = no_contents()
    kept = torch.randn(3)
    payloads = saved({**{name: tensor for name, (tensor, _) in cases.items()}, "kept": kept}, tmp_path)
    assert payloads.unsaved == {name: reason for name, (_, reason) in cases.items()}
    assert list(payloads) == ["kept"]
    for name, (_, reason) in cases.items():
        with pytest.raises(NotSavedError) as caught:
            payloads[name]
        assert str(caught.value) == (
            f"{name!r} was not saved: {reason}. Its shape, dtype and place in the graph are in the record."
        )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:.*quantization.*")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_nested_quantized_fake_and_transformed_tensors_are_not_read(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with TensorWriter(tmp_path / "run.tch") as writer:
        writer.put("nested", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
        writer.put("jagged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged))
        writer.put("quantized", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))
        with FakeTensorMode() as mode:
            fake = torch.empty(3)
        assert mode is not None
        writer.put("fake", fake)

        def inside(x: torch.Tensor) -> torch.Tensor:
            writer.put("vmap", x)
            return x * 2

        torch.vmap(inside)(torch.ones(2, 3))
        reasons = writer.unsaved
        writer.finish(make_record())
    assert reasons == {
        "nested": "it is a nested tensor",
        "jagged": "it is a NestedTensor, a kind of tensor that torcheer cannot store",
        "quantized": "it is quantized (quint8)",
        "fake": "it is a FakeTensor, a kind of tensor that torcheer cannot store",
        "vmap": "it belongs to a function transform, which hides its memory",
    }


def test_arrays_of_numpy_come_back_as_tensors(tmp_path: Path) -> None:
    arrays = {
        "plain": np.arange(6, dtype=np.int16).reshape(2, 3),
        "scalar": np.array(1.5),
        "fortran": np.asfortranarray(np.random.default_rng(0).random((3, 4), dtype=np.float32)),
        "big_endian": np.array([1.5, -2.0], dtype=">f8"),
        "complex": np.array([1 + 2j, complex(np.nan, -0.0)]),
        "empty": np.zeros((0, 2)),
        "flags": np.array([True, False]),
        "stepped": np.arange(10)[::-3],
    }
    payloads = saved(arrays, tmp_path)
    for name, array in arrays.items():
        expected = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
        assert same(payloads[name], expected.reshape(array.shape)), name


def without_torch(code: str, path: Path) -> str:
    """Run code where torch cannot be imported; ``payloads`` are those of the recording."""
    start = (
        "import sys; sys.modules['torch'] = None; from torcheer.record.file import read, write;"
        "from torcheer.errors import RecordFileError; record, payloads = read(sys.argv[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", start + code, str(path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_torch_numpy_reads_what_it_can(tmp_path: Path) -> None:
    tensors = {
        "f": torch.tensor([1.5, 2]), "i": torch.tensor(7), "c": torch.tensor([1 + 2j, 3j]).cdouble(),
        "h": torch.tensor([0.5]).half(), "b": torch.tensor([1.0]).bfloat16(), "z": torch.zeros(0, 2),
        "q": torch.tensor([1.0]).to(torch.float8_e5m2), "x": torch.tensor([1.0]).to(torch.float8_e4m3fnuz),
    }  # fmt: skip
    path = write(make_record(), tensors, tmp_path / "run.tch")
    code = """
import numpy
for name in "ficzh":
    array = payloads[name]
    print(type(array).__name__, array.dtype, array.shape, array.tolist())
for name in "bqx":
    try: payloads[name]
    except RecordFileError as error: print(error)
payloads = {name: payloads[name] for name in "ficzh"}
write(record, payloads, sys.argv[1] + "2")
"""
    lines = without_torch(code, path).splitlines()
    assert lines[:5] == [
        "ndarray float32 (2,) [1.5, 2.0]",
        "ndarray int64 () 7",
        "ndarray complex128 (2,) [(1+2j), 3j]",
        "ndarray float32 (0, 2) []",
        "ndarray float16 (1,) [0.5]",
    ]
    assert [line.split(": ")[1] for line in lines[5:]] == [
        "'b' is of dtype BF16, which numpy lacks. Install torch.",
        "'q' is of dtype F8_E5M2, which numpy lacks. Install torch.",
        "'x' is of dtype float8_e4m3fnuz, which numpy lacks. Install torch.",
    ]
    again = read(tmp_path / "run.tch2")[1]
    assert all(same(again[name], tensors[name]) for name in "ficzh")


def test_without_torch_and_numpy_the_remedy_is_named(tmp_path: Path) -> None:
    path = write(make_record(), {"a": torch.ones(2)}, tmp_path / "run.tch")
    code = """
sys.modules["numpy"] = None
try: payloads["a"]
except RecordFileError as error: print(error)
"""
    expected = "Reading tensors of a recording needs torch or numpy. Install one: pip install numpy"
    assert without_torch(code, path).strip() == expected


def test_files_are_opened_when_asked_for_and_mapped(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "run.tch", buffer_bytes=1) as writer:
        for i in range(3):
            writer.put(f"value.{i}", torch.full((1000,), float(i)))
        path = writer.finish(make_record()).path
    payloads = read(path)[1]
    (path / "tensors-00002.safetensors").unlink()
    assert payloads["value.0"][0] == 0
    assert payloads["value.2"][0] == 2
    with pytest.raises(RecordFileError, match=r"tensors-00002\.safetensors: cannot be opened .*restore it"):
        payloads["value.1"]


def test_a_tensor_read_can_be_changed_and_outlives_the_store(tmp_path: Path) -> None:
    path = write(make_record(), {"a": torch.zeros(1000)}, tmp_path / "run.tch")
    payloads = read(path)[1]
    tensor = payloads["a"]
    tensor.add_(1)
    payloads.close()
    assert tensor.sum() == 1000
    assert payloads["a"].sum() == 0
    assert read(path)[1]["a"].sum() == 0


def test_a_recording_can_be_written_from_one_that_is_read(tmp_path: Path) -> None:
    tensors = odd_views()
    path = write(make_record(), tensors, tmp_path / "run.tch")
    record, payloads = read(path)
    write(record, payloads, tmp_path / "copy.tch")
    write(record, payloads, path, overwrite=True)
    for place in ("copy.tch", "run.tch"):
        again = read(tmp_path / place)[1]
        assert all(same(again[key], tensor) for key, tensor in tensors.items())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["copy.tch", "run.tch"]


def test_contents_come_as_arrays_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "run.tch"
    x = torch.tensor([[1.5, -2.0]])
    for given in (x, x.to(torch.bfloat16), x.to(torch.complex64)):
        tl.log_forward_pass(torch.nn.Flatten(), given).save(path, overwrite=True)
        contents = tl.load(path, arrays=True)[0].tensor_contents
        is_numpys = given.dtype is not torch.bfloat16  # which numpy lacks
        assert isinstance(contents, np.ndarray) is is_numpys
        assert torch.equal(torch.as_tensor(contents), given)
