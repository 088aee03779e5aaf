"""The codec returns what it was given, follows the dataclasses by itself, and refuses all else."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.make_record import loop_record, make_record, small_record
from torcheer.record import model
from torcheer.record.file_check import check_record
from torcheer.record.file_codec import Budget, Kind, decode_column, encode_column, kind_of
from torcheer.record.file_plain import MAX_INT, MAX_UNSIGNED, MalformedError, decode_plain, encode_plain
from torcheer.record.model import Edge, Frame, Item, Op, Opaque, Record, Ref


def through_json(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


def round_trip(kind: Kind, cells: list[Any]) -> list[Any]:
    column = through_json(encode_column(kind, cells))
    return decode_column(kind, column, len(cells), Budget(0))


def round_trip_plain(value: Any) -> Any:
    return decode_plain(through_json(encode_plain(value)))


@pytest.mark.parametrize("make", [small_record, loop_record, make_record])
def test_a_record_comes_back_equal(make: Any) -> None:
    record = make()
    check_record(record)
    (loaded,) = round_trip(kind_of(Record), [record])
    assert loaded == record
    # Equality does not tell Ref(1) from 1, or Item from a tuple; the repr does.
    assert repr(loaded) == repr(record)
    assert type(loaded.ops[1].parents[0]) is Edge
    assert type(loaded.ops[1].outputs[0]) is Item
    assert type(loaded.sites[0].frames[0]) is Frame
    assert type(loaded.ops[1].args[0]) is Ref


def different(hint: Any) -> Any:
    """A value of that annotation that is no default."""
    kind = kind_of(hint)
    samples: list[Any] = [7, "text", True, {"k": (1, Ref(0))}, (3, 8), ("a",)]
    for sample in samples:
        try:
            encode_column(kind, [sample])
        except MalformedError:
            continue
        return sample
    raise AssertionError(f"no sample for {hint}")


@pytest.mark.parametrize("cls", [c for c in vars(model).values() if is_dataclass(c) and c is not Record])
def test_every_field_of_every_dataclass_is_written(cls: Any) -> None:
    samples = {
        "outputs": (Item("0", 1),),
        "inputs": (Item("0", 1),),
        "hidden": (1, 2),
        "parents": (Edge(0, 1, "memory", ""),),
        "frames": (Frame("a.py", 3, "f"),),
        "args": (1, Ref(2), Opaque("x")),
    }
    hints = get_type_hints(cls)
    row = cls(**{f.name: samples.get(f.name) or different(hints[f.name]) for f in fields(cls)})
    (loaded,) = round_trip(kind_of(list[cls]), [[row]])  # type: ignore[valid-type]
    assert repr(loaded) == repr([row])


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        MAX_INT,
        MAX_UNSIGNED + 1,
        -(2**4095),
        0.1,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        1e-320,
        complex(1, -0.0),
        complex(math.nan, math.inf),
        "text",
        "\ud800 \0 ☃",
        "",
        (),
        [],
        {},
        (1, (2, [3, {"a": (4,)}])),
        {"b": 1, "a": 2, 3: "int", True: "bool"},
        slice(None),
        slice(Ref(1), 2, None),
        ...,
        Ref(5),
        Opaque("torch.Generator"),
        (slice(0, None), ..., None, Ref(0)),
        {"r": 1},
        {"t": [1], "all": 2},
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_plain_data_comes_back_the_same(value: Any) -> None:
    assert repr(round_trip_plain(value)) == repr(value)


def plain_data() -> st.SearchStrategy[Any]:
    keys = st.text(max_size=5) | st.integers()
    atoms = (
        (st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text(max_size=9))
        | st.builds(Ref, st.integers(0, 99))
        | st.builds(Opaque, st.text())
        | st.just(...)
    )
    return st.recursive(
        atoms,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(keys, inner, max_size=4)
            | st.builds(slice, inner, inner, inner)
        ),
        max_leaves=20,
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(plain_data(), max_size=5))
def test_any_plain_data_comes_back_the_same(cells: list[Any]) -> None:
    assert repr(round_trip(kind_of(Any), cells)) == repr(cells)


def test_subclasses_become_what_they_are_based_on() -> None:
    class Size(tuple[int, ...]):
        __slots__ = ()

    assert type(round_trip_plain(Size((1, 2)))) is tuple
    assert round_trip_plain(Size((1, 2))) == Size((1, 2))


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = (value,)
    return value


def test_plain_data_nests_a_hundred_deep_and_no_deeper() -> None:
    assert round_trip_plain(nested(100)) == nested(100)
    with pytest.raises(MalformedError, match="nested more than 100 deep"):
        encode_plain(nested(101))
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(MalformedError, match="nested more than 100 deep"):
        encode_plain(loop)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"x", "a value of type 'bytes' is not plain data"),
        ({1, 2}, "a value of type 'set' is not plain data"),
        ({(1,): 2}, "a dict has a key of type 'tuple'; keys are strings or integers"),
        (2**4096, "an integer has more than 4096 bits"),
        (object(), "a value of type 'object' is not plain data"),
    ],
)
def test_what_is_not_plain_data_is_refused(value: Any, message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        encode_plain(value)


@pytest.mark.parametrize(
    "data",
    [
        {"unknown": 1},
        {},
        {"r": 1, "t": []},
        {"r": "1"},
        {"r": 2**64},
        {"r": True},
        {"t": 1},
        {"d": {"a": 1}},
        {"d": [["a"]]},
        {"d": [[None, 1]]},
        {"d": [[[1], 1]]},
        {"d": [[{"r": 1}, 1]]},
        {"s": [1, 2]},
        {"f": "nan "},
        {"f": ["nan"]},
        {"c": [1, 2]},
        {"c": [1.0]},
        {"e": 1},
        {"i": "zz"},
        {"i": 3},
        {"i": "0x" + 2000 * "f"},
        {"o": None},
        2**64,
    ],
    ids=lambda data: repr(data)[:30],
)
def test_what_stands_for_no_plain_data_is_refused(data: Any) -> None:
    with pytest.raises(MalformedError):
        decode_plain(data)


def test_repeated_cells_are_written_once() -> None:
    column = encode_column(kind_of(str), ["/long/path/to/a/file.py", "b"] * 100)
    assert column["pool"] == ["/long/path/to/a/file.py", "b"]
    assert encode_column(kind_of(int | None), [None] * 100) == {"all": [None]}
    assert encode_column(kind_of(tuple[int, ...]), [(1, 2)] * 50) == {"all": {"len": [2], "item": [1, 2]}}


@pytest.mark.parametrize(
    ("hint", "cells"),
    [
        (int, []),
        (int, [1, 2]),
        (float, [0.0, -0.0, math.inf]),
        (int | None, [None, 1, None]),
        (float | None, [None, math.nan]),
        (tuple[int, ...] | None, [None, (), (1,), None, (1,), (1,)]),
        (tuple[int, ...] | None, [None, None]),
        (tuple[int, int] | None, [(1, 2), None, (1, 2)]),
        (dict[str, Any] | None, [None, {"a": 1}, {}]),
        (dict[str, Any], [{}, {}]),
        (Any, [1, True, 1.0]),
        (Any, [1, 1, 1]),
        (tuple[Any, ...], [(1,), (True,), (1,)]),
        (tuple[str, ...], [("a",), ("a",), (), ("a", "b")]),
        (dict[int, str], [{3: "a", 1: "b"}, {}, {1: "a"}]),
        (dict[str, Any], [{}]),
        (Edge, [Edge(1, 2, "argument", "0")] * 5),
    ],
    ids=repr,
)
def test_columns_come_back(hint: Any, cells: list[Any]) -> None:
    assert repr(round_trip(kind_of(hint), cells)) == repr(cells)


def test_rows_do_not_share_what_can_change() -> None:
    first, second = round_trip(kind_of(dict[str, Any]), [{}, {}])
    assert first is not second
    first, second = round_trip(kind_of(Any), [[1], [1]])
    assert first is not second
    with pytest.raises(MalformedError, match="which only constants may"):
        decode_column(kind_of(Any), {"all": [[1]]}, 2, Budget(0))
    with pytest.raises(MalformedError, match="which only constants may"):
        decode_column(kind_of(Any), {"pool": [[1]], "rows": [0, 0]}, 2, Budget(0))


@pytest.mark.parametrize(
    ("hint", "cells", "message"),
    [
        (int, [1, True], "True is not of type int"),
        (int, [1.0], "1.0 is not of type int"),
        (int, [Ref(1)], r"Ref\(1\) is not of type int"),
        (int, [2**64], "a very large integer is not an integer of at most 64 bits"),
        (str, [None], "None is not of type str"),
        (bool, [1], "1 is not of type bool"),
        (tuple[int, ...], [[1]], "a list of 1 is not of type tuple"),
        (tuple[int, ...], [([1],), ([1],)], "a list of 1 is not of type int"),
        (tuple[int, int], [(1,)], "a tuple is not 2 long"),
        (dict[str, Any], [None], "None is not of type dict"),
        (dict[str, Any], [{1: 2}], "1 is not of type str"),
        (dict[int, str], [{1: 2}], "2 is not of type str"),
        (Edge, [(1, 2, "a", "b")], "is not of type Edge"),
        (list[Op], [()], "is not a list"),
    ],
    ids=str,
)
def test_cells_of_a_wrong_type_are_not_written(hint: Any, cells: list[Any], message: str) -> None:
    with pytest.raises(MalformedError, match=message):
        encode_column(kind_of(hint), cells)


@pytest.mark.parametrize(
    ("hint", "column", "count"),
    [
        (int, [1], 2),
        (int, [1, 2, 3], 2),
        (int, ["1", "2"], 2),
        (int, {"all": []}, 2),
        (int, {"all": [1, 2]}, 2),
        (int, 7, 2),
        (int, None, 2),
        (int, {"pool": [5], "rows": [0, 1]}, 2),
        (str, {"pool": ["a"], "rows": [0, -1]}, 2),
        (str, {"pool": ["a"], "rows": [0, True]}, 2),
        (str, {"pool": ["a"], "rows": [0, 9]}, 2),
        (str, {"pool": ["a"]}, 2),
        (str, {"pool": {"all": ["a"]}, "rows": [0, 0]}, 2),
        (int | None, {"null": [0], "rest": [1]}, 2),
        (tuple[int, ...], {"len": [1, -1], "item": []}, 2),
        (tuple[int, ...], {"len": [1, 1], "item": [1]}, 2),
        (tuple[int, ...], {"len": [1, 1]}, 2),
        (tuple[int, ...] | None, {"null": [5], "rest": {"len": [1], "item": [1]}}, 2),
        (tuple[int, ...] | None, {"null": 5, "rest": {"len": [1], "item": [1]}}, 2),
        (tuple[int, ...] | None, {"null": [0, 0], "rest": {"len": [], "item": []}}, 2),
        (tuple[int, int], {"len": [2, 1], "item": [1, 2, 3]}, 2),
        (dict[str, Any], {"len": [2, 0], "key": ["a", "a"], "item": [1, 2]}, 2),
        (dict[str, Any], {"len": [2, 0], "key": ["a", "b"], "item": [1]}, 2),
        (dict[int, str], {"len": [1, 0], "key": ["a"], "item": ["b"]}, 2),
        (dict[int, str], {"len": [1, 0], "item": ["b"]}, 2),
        (list[Op], {"count": -1, "columns": {}}, 1),
        (list[Op], {"count": 2**70, "columns": {}}, 1),
        (list[Op], {"count": 1, "columns": {}}, 1),
        (list[Op], {"count": 1, "columns": []}, 1),
        (list[Op], {"columns": {}}, 1),
    ],
    ids=str,
)
def test_columns_that_are_none_are_refused(hint: Any, column: Any, count: int) -> None:
    with pytest.raises(MalformedError):
        decode_column(kind_of(hint), column, count, Budget(0))


@pytest.mark.parametrize(
    ("hint", "column"),
    [
        (list[model.Site], {"count": 10**12, "columns": {"frames": {"all": {"len": [0], "item": []}}}}),
        (tuple[tuple[int, ...], ...], {"len": [10**12], "item": {"all": {"len": [1], "item": [1]}}}),
        (tuple[int, ...], {"len": [10**9], "item": {"all": [1]}}),
        (
            tuple[tuple[int, ...], ...],
            {"len": [9000], "item": {"all": {"len": [9000], "item": {"all": [1]}}}},
        ),
        (
            tuple[tuple[int, ...], ...],
            {"len": [9000], "item": {"pool": {"len": [9000], "item": {"all": [1]}}, "rows": [0] * 9000}},
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_few_bytes_cannot_fill_the_memory(hint: Any, column: Any) -> None:
    with pytest.raises(MalformedError, match="far more data than its size allows"):
        decode_column(kind_of(hint), column, 1, Budget(1000))


class NewFrame(NamedTuple):
    file: str
    line: int
    function: str
    column: int = -1


def test_a_file_older_than_a_field_gets_its_default() -> None:
    @dataclass
    class OldSite:
        frames: tuple[Frame, ...]

    @dataclass
    class Newer:
        frames: tuple[NewFrame, ...]
        tags: tuple[str, ...] = ("none",)
        seen: dict[str, Any] = field(default_factory=dict)

    # Annotations of local classes cannot be resolved from their text.
    OldSite.__annotations__ = {"frames": tuple[Frame, ...]}
    Newer.__annotations__ = {"frames": tuple[NewFrame, ...], "tags": tuple[str, ...], "seen": dict[str, Any]}
    old = through_json(encode_column(kind_of(list[OldSite]), [[OldSite((Frame("a", 1, "f"),)), OldSite(())]]))
    ((first, second),) = decode_column(kind_of(list[Newer]), old, 1, Budget(0))
    assert first == Newer((NewFrame("a", 1, "f", -1),), ("none",), {})
    assert second == Newer(())
    assert first.seen is not second.seen


def test_a_column_of_a_later_torcheer_is_skipped_and_one_without_default_is_missed() -> None:
    column = encode_column(kind_of(list[model.Layer]), [small_record().layers])
    column["columns"]["colour"] = ["red"]
    assert decode_column(kind_of(list[model.Layer]), column, 1, Budget(0)) == [small_record().layers]
    del column["columns"]["name"]
    with pytest.raises(MalformedError, match=r"Layer\.name: the column is missing"):
        decode_column(kind_of(list[model.Layer]), column, 1, Budget(0))


def test_an_annotation_without_a_form_is_a_mistake_in_the_code() -> None:
    with pytest.raises(TypeError, match="no form for a field annotated"):
        kind_of(set[int])
