"""Edges from storage, version and view, without a framework: small programs, spelled out."""

from __future__ import annotations

from torcheer.record.dataflow import Dataflow, Maker, edges
from torcheer.record.model import Value

ITEM_BYTES = 4


class Program:
    """Ops in order; each tensor object has a name."""

    def __init__(self) -> None:
        self.flow = Dataflow()
        self.num_ops = 0
        self.refs: dict[str, int] = {}

    def make(
        self,
        name: str,
        storage: int,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        offset: int = 0,
        *,
        reads: tuple[str, ...] = (),
        is_view: bool = False,
    ) -> list[int]:
        """An op returns a new tensor. Its parents."""
        parents = self.read(*reads)
        ref = self.refs[name] = len(self.refs)
        value = Value(-1, "activation", None, shape, "float32", "cpu", "strided", stride, offset, storage, 0, None)
        layout = (shape, stride, offset, ITEM_BYTES)
        self.flow.introduce(ref, value, layout, Maker(self.num_ops, None), is_view=is_view)
        self.num_ops += 1
        return parents

    def write(self, name: str, *reads: str) -> list[int]:
        """An op writes in place. Its parents."""
        parents = self.read(name, *reads)
        self.flow.wrote(self.refs[name], Maker(self.num_ops, None))
        self.num_ops += 1
        return parents

    def read(self, *names: str) -> list[int]:
        found = [edge.op for name in names for edge in edges(self.flow.read(self.refs[name]), name, aten=False)]
        return list(dict.fromkeys(found))


def test_writes_through_two_rows_reach_who_reads_the_whole() -> None:
    program = Program()
    program.make("y", 0, (3, 4), (4, 1))  # 0
    assert program.make("a", 0, (4,), (1,), 0, reads=("y",), is_view=True) == [0]  # 1
    assert program.make("b", 0, (4,), (1,), 4, reads=("y",), is_view=True) == [0]  # 2
    assert program.write("a") == [1]  # 3
    assert program.write("b") == [2]  # 4: the other row was written, not this one
    assert program.read("y") == [0, 3, 4]
    assert program.read("a") == [3]


def test_a_view_sees_a_later_write_to_its_base_and_stays_a_view() -> None:
    program = Program()
    program.make("y", 0, (3, 4), (4, 1))  # 0
    program.make("v", 0, (2, 4), (4, 1), reads=("y",), is_view=True)  # 1
    program.write("y")  # 2
    assert program.read("v") == [1, 2]


def test_a_view_made_after_a_write_has_the_write_behind_it() -> None:
    program = Program()
    program.make("y", 0, (4,), (1,))  # 0
    program.write("y")  # 1
    assert program.make("v", 0, (2,), (1,), reads=("y",), is_view=True) == [1]  # 2
    assert program.read("v") == [2]


def test_what_a_later_write_covers_no_longer_flows() -> None:
    program = Program()
    program.make("y", 0, (4,), (1,))  # 0
    program.make("half", 0, (2,), (1,), reads=("y",), is_view=True)  # 1
    program.make("whole", 0, (4,), (1,), reads=("y",), is_view=True)  # 2
    program.write("half")  # 3
    program.write("whole")  # 4
    assert program.read("y") == [4]


def test_interleaved_columns_do_not_touch_each_other() -> None:
    program = Program()
    program.make("y", 0, (3, 2), (2, 1))  # 0
    program.make("left", 0, (3,), (2,), 0, reads=("y",), is_view=True)  # 1
    program.make("right", 0, (3,), (2,), 1, reads=("y",), is_view=True)  # 2
    program.write("left")  # 3
    assert program.read("right") == [2]


def test_a_write_makes_a_new_value_and_a_new_version() -> None:
    program = Program()
    program.make("y", 0, (4,), (1,))
    before = program.flow.value_of(program.refs["y"])
    program.write("y")
    after = program.flow.value_of(program.refs["y"])
    values = program.flow.values
    assert before != after
    assert (values[before].version, values[after].version) == (0, 1)
    assert values[before].storage == values[after].storage


def test_an_object_handed_back_unchanged_belongs_to_who_handed_it_back() -> None:
    program = Program()
    program.make("y", 0, (4,), (1,))  # 0
    program.flow.returned(program.refs["y"], Maker(1, None))
    assert program.read("y") == [1]


def test_what_was_made_outside_the_run_has_no_edge() -> None:
    flow = Dataflow()
    value = Value(-1, "constant", None, (4,), "float32", "cpu", "strided", (1,), 0, 0, 0, None)
    flow.introduce(0, value, None, Maker(None, None), is_view=True)
    assert edges(flow.read(0), "0", aten=False) == []
