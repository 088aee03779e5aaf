"""Files of tensors as the command line is given them, damaged or forged: read or refused, never run, never for ever."""

from __future__ import annotations

import random
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from torcheer.capture.torch.given import read_tensors
from torcheer.cli.main import main
from torcheer.errors import CaptureError

NUM_TRIES = 150  # for each file


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    x = torch.rand(6, 4)
    np.save(folder / "x.npy", x.numpy())
    np.savez(folder / "x.npz", x=x.numpy(), y=np.arange(3))
    np.savez_compressed(folder / "packed.npz", x=x.numpy())
    torch.save({"x": x, "n": 1}, folder / "x.pt")
    torch.save(x, folder / "old.pt", _use_new_zipfile_serialization=False)
    save_file({"x": x}, folder / "x.safetensors")
    return folder


def damaged(data: bytes, plan: random.Random) -> Iterator[bytes]:
    """The same bytes, each time with something else wrong."""
    for _ in range(NUM_TRIES):
        changed, place = bytearray(data), plan.randrange(len(data))
        kind = plan.choice(("flip", "cut", "grow", "zero", "number"))
        if kind == "flip":
            for _ in range(plan.randint(1, 8)):
                changed[plan.randrange(len(data))] ^= 1 << plan.randrange(8)
        elif kind == "cut":
            del changed[place:]
        elif kind == "grow":
            changed += plan.randbytes(plan.randint(1, 300))
        elif kind == "zero":
            changed[place : place + 32] = bytes(32)
        else:
            changed[place : place + 4] = struct.pack("<I", plan.choice((0, 1, 2**31 - 1, 2**32 - 1)))
        yield bytes(changed)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "packed.npz", "x.pt", "old.pt", "x.safetensors"])
def test_damaged_files(files: Path, name: str, tmp_path: Path) -> None:
    path = tmp_path / f"damaged{Path(name).suffix}"
    said: list[str] = []
    for data in damaged((files / name).read_bytes(), random.Random(name)):
        path.write_bytes(data)
        try:
            read_tensors(path)
        except CaptureError as error:
            said.append(str(error))
    assert len(said) > NUM_TRIES / 10
    assert all(str(path) in text for text in said)
    assert all(text.endswith(("with nothing but tensors in it.", "Check the path.")) for text in said)


def test_archives_that_unpack_to_far_more(tmp_path: Path) -> None:
    """Ten gigabytes in ten kilobytes are refused by what the archive says, before anything is unpacked."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(10_000))
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", 10_000), struct.pack("<I", 4_000_000_000)))
    with pytest.raises(CaptureError, match=r"its \S+ \S+ stand for 3\.7 GiB"):
        read_tensors(path)


def test_a_tensor_that_shows_one_number_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "wide.pt"
    torch.save(torch.zeros(1).expand(10**12), path)
    with pytest.raises(CaptureError, match="stand for"):
        read_tensors(path)


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(4, np.float32))
    path.write_bytes(path.read_bytes().replace(b"(4,), }      ", b"(4000000000000,), }"[:13]))
    with pytest.raises(CaptureError, match=r"x\.npy cannot be read as tensors"):
        read_tensors(path)


@pytest.mark.parametrize("ending", [".pt", ".npy", ".npz"])
def test_code_is_never_run(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran, path = tmp_path / "ran", tmp_path / f"evil{ending}"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    if ending == ".pt":
        torch.save({"x": torch.ones(2), "evil": Evil()}, path)
    elif ending == ".npy":
        np.save(path, np.array([Evil()], dtype=object), allow_pickle=True)
    else:
        np.savez(path, x=np.array([Evil()], dtype=object))
    assert main(["trace", "torch.nn:Identity", "-i", str(path)]) == 2
    assert "never code" in capsys.readouterr().err
    assert not ran.exists()
