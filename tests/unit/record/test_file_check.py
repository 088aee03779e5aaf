"""Tables of a record that do not fit together are refused, and no field of the model is forgotten."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from tests.unit.make_record import make_record
from torcheer.record import model
from torcheer.record.file_check import COUNTS, PLAIN, REFERENCES, SIZES, check_record
from torcheer.record.file_plain import MalformedError
from torcheer.record.model import Edge, Item, Record, Ref


def test_every_number_and_all_plain_data_of_the_model_is_checked() -> None:
    """A field added to the model must be placed: does it point into a table, count, or neither?"""
    neither = {
        "ops": {"index", "layer", "pass_index", "seq"},
        "aten": {"index", "layer", "pass_index", "seq"},
        "values": {"index", "stride", "storage", "node_seq", "node_output"},
        "layers": {"number", "position"},
        "calls": {"index", "call_index", "first_op", "end_op", "seq", "thread", "memory"},
        "gradients": {"backward"},
        "memory": {"storage", "delta_bytes", "aten"},
        "held": {"storage"},
    }
    for table, hint in get_type_hints(Record).items():
        row = next(iter(getattr(hint, "__args__", ())), None)
        if table in ("run", "saved") or row is None:
            continue
        numbers = (*REFERENCES.get(table, ()), *COUNTS.get(table, ()), *SIZES.get(table, ()))
        placed = {name.partition(".")[0] for name in numbers}
        placed |= neither.get(table, set()) | set(PLAIN.get(table, ()))
        numeric = {
            name
            for name, annotation in get_type_hints(row).items()
            if any(word in str(annotation) for word in ("int", "Any", "Item", "Edge", "Frame"))
        }
        assert numeric == placed, table


def _set(path: str, value: Any) -> Any:
    def change(record: Record) -> None:
        table, place, name = path.split(".")
        setattr(getattr(record, table)[int(place)], name, value)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("ops.1.call", 6), r"ops\[1\]\.call is 6: the number of calls is 6"),
        (_set("ops.1.site", -1), r"ops\[1\]\.site is -1: the number of sites is"),
        (_set("ops.1.index", 0), r"ops\[1\]\.index is 0"),
        (_set("ops.1.hidden", (99,)), r"ops\[1\]\.hidden is 99"),
        (_set("ops.1.outputs", (Item("", 99),)), r"ops\[1\]\.outputs\.value is 99"),
        (_set("ops.1.parents", (Edge(99, 0, "argument", ""),)), r"ops\[1\]\.parents\.op is 99"),
        (_set("ops.1.parents", (Edge(2, 0, "argument", ""),)), r"ops\[1\]\.parents\.op leads in a circle"),
        (_set("ops.1.owner", 1), r"ops\[1\]\.owner leads in a circle"),
        (_set("ops.1.layer", 8), r"ops\[1\]\.layer is 8: the number of layers is 8"),
        (_set("ops.1.args", ([{"a": slice(Ref(99), None)}],)), r"arguments hold Ref\(99\)"),
        (_set("ops.1.result", Ref(-1)), r"arguments hold Ref\(-1\)"),
        (_set("ops.1.time_ns", -5), r"ops\[1\]\.time_ns is -5: must not be below 0"),
        (_set("aten.1.parents", (Edge(9, 0, "memory", ""),)), r"aten\[1\]\.parents\.op is 9"),
        (_set("values.1.shape", (2, -2)), r"values\[1\]\.shape is -2: must not be below -1"),
        (_set("gradients.0.shape", (-2,)), r"gradients\[0\]\.shape is -2: must not be below -1"),
        (_set("values.1.param", 4), r"values\[1\]\.param is 4: the number of params is 4"),
        (_set("layers.1.ops", (10,)), r"layers\[1\]\.ops is 10: the number of ops is 10"),
        (_set("modules.1.parent", 1), r"modules\[1\]\.parent leads in a circle"),
        (_set("calls.0.parent", 5), r"calls\[0\]\.parent leads in a circle"),
        (_set("calls.1.end_op", 11), r"calls\[1\] spans ops 1 to 11: the number of ops is 10"),
        (_set("calls.1.first_op", 5), r"calls\[1\] spans ops 5 to 4"),
        (_set("calls.1.memory", (0, 1)), r"calls\[1\] spans memory 0 to 1: the number of events is 0"),
        (
            lambda record: record.memory.append(model.MemoryEvent(0, 4, 9, "activation")),
            r"memory\[0\]\.aten is 9: the number of aten is 9",
        ),
        (
            lambda record: record.timings.append(model.Timing("call", 6, "forward", 1, 1, 0, 1)),
            r"timings\[0\] is of call 6, which is none",
        ),
        (_set("gradients.0.value", 15), r"gradients\[0\]\.value is 15"),
        (
            lambda record: record.diagnostics.append(model.Diagnostic("a", "b", op=10)),
            r"diagnostics\[2\]\.op",
        ),
        (lambda record: record.saved.update({15: "a"}), "saved holds 15: the number of values is 15"),
        (lambda record: setattr(record.run, "output_data", {"a": Ref(15)}), r"arguments hold Ref\(15\)"),
    ],
)
def test_tables_that_do_not_fit_together_are_refused(change: Any, message: str) -> None:
    record = make_record()
    check_record(record)
    change(record)
    with pytest.raises(MalformedError, match=message):
        check_record(record)


def test_a_size_that_differs_from_row_to_row_is_allowed() -> None:
    record = make_record()
    record.values[1].shape = (2, -1)
    record.gradients[0].shape = (-1,)
    check_record(record)
