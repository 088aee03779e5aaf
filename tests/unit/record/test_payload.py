"""What a store of contents says of those it does not have."""

from __future__ import annotations

from typing import Any

from torcheer.errors import NotSavedError
from torcheer.record.payload import OVERWRITTEN, is_kept, reason_missing, unsaved_of


class Store(dict[str, Any]):
    unsaved = {"sparse": "its layout is sparse_coo"}  # noqa: RUF012

    def is_current(self, name: str) -> bool:
        return name == "good"

    def __getitem__(self, name: str) -> Any:
        if name == "raises":
            raise NotSavedError("an optimizer step overwrote it")
        return super().__getitem__(name)


STORE = Store(good=1, raises=2, silent=3)


def test_a_plain_dict_is_a_store() -> None:
    assert is_kept({"a": 1}, "a")
    assert not is_kept({"a": 1}, "b")
    assert unsaved_of({"a": 1}) == {}
    assert reason_missing({"a": 1}, "b") is None


def test_a_store_that_knows_more() -> None:
    assert [name for name in (*STORE, "sparse") if is_kept(STORE, name)] == ["good"]
    assert unsaved_of(STORE) == {"sparse": "its layout is sparse_coo"}
    assert reason_missing(STORE, "sparse") == "its layout is sparse_coo"
    assert reason_missing(STORE, "raises") == "an optimizer step overwrote it"
    assert reason_missing(STORE, "silent") == OVERWRITTEN
    assert reason_missing(STORE, "unheard of") is None
