"""How operations hang together."""

from __future__ import annotations

import pytest

from tests.unit.history.make_history import build_net, nested_record, shared_record, split_record
from tests.unit.make_record import loop_record, make_record, small_record
from torcheer.history.structure import Structure
from torcheer.record.model import Edge, Record


def labels(structure: Structure, ops: tuple[int, ...]) -> list[str]:
    return [structure.labels[op] for op in ops]


@pytest.mark.parametrize("record", [small_record(), loop_record(), make_record(), nested_record(), split_record()])
def test_parents_and_children_are_each_others_reverse(record: Record) -> None:
    structure = Structure(record)
    down = {(parent, child) for child in structure.listed for parent in structure.parents[child]}
    up = {(parent, child) for parent in structure.listed for child in structure.children[parent]}
    assert down == up
    assert all(parent < child for parent, child in down)


def test_a_loop_is_recurrent() -> None:
    assert Structure(loop_record()).is_recurrent
    assert Structure(shared_record()).is_recurrent
    assert not Structure(small_record()).is_recurrent


def test_passes_that_do_not_depend_on_each_other_are_not_recurrent() -> None:
    build, x = build_net()
    for _ in range(3):
        last = build.op("add", "torch.add", (2, 3), (x,))
    build.output(last)
    build.layers(((1, 2, 3),))
    structure = Structure(build.record)
    assert not structure.is_recurrent
    assert structure.is_branching


def test_a_recurrence_through_other_layers_is_seen() -> None:
    build, x = build_net()
    for _ in range(2):
        x = build.op("add", "torch.add", (2, 3), (x,))
        x = build.op("relu", "torch.relu", (2, 3), (x,))
    build.layers(((1, 3),))
    assert Structure(build.record).is_recurrent


def test_branching() -> None:
    assert not Structure(small_record()).is_branching
    assert not Structure(loop_record()).is_branching
    build, x = build_net()
    twice = build.op("add", "torch.add", (2, 3), (x, x))
    build.output(twice)
    build.layers()
    assert not Structure(build.record).is_branching
    build, x = build_net()
    y = build.op("relu", "torch.relu", (2, 3), (x,))
    build.output(build.op("add", "torch.add", (2, 3), (x, y)))
    build.layers()
    assert Structure(build.record).is_branching


def test_edges_from_inside_an_operation_are_lifted_to_it() -> None:
    structure = Structure(nested_record())
    assert labels(structure, structure.parents[4]) == ["double_1_1"]
    assert labels(structure, structure.children[1]) == ["relu_1_2"]
    assert labels(structure, structure.parents[3]) == ["double_1_1/mul_1"]
    assert labels(structure, structure.children[2]) == ["double_1_1/mul_2"]
    assert structure.num_inner == 2


def test_an_operation_is_not_its_own_parent() -> None:
    record = nested_record()
    record.ops[1].parents += (Edge(3, record.ops[3].outputs[0].value, "memory", ""),)
    structure = Structure(record)
    assert labels(structure, structure.parents[1]) == ["input_1_0"]
    assert labels(structure, structure.children[1]) == ["relu_1_2"]


def test_operations_nest_more_than_once() -> None:
    record = nested_record()
    record.ops[3].owner = 2
    assert Structure(record).labels[2:4] == ["double_1_1/mul_1", "double_1_1/mul_1/mul_1"]
    assert Structure(record).lifted(3) == 1


def test_a_param_is_used_where_either_level_reads_it() -> None:
    record = small_record()
    assert Structure(record).used_params == {0, 1, 2, 3}
    record.ops[1].params = ()
    assert Structure(record).used_params == {0, 1, 2, 3}
    assert 0 not in Structure(record).param_users
    record.aten[0].params = ()
    assert Structure(record).used_params == {2, 3}


def test_which_calls_returned_what_an_operation_made() -> None:
    structure = Structure(small_record())
    assert [structure.call_label(call) for call in structure.outputs_of[3]] == ["features.2:1", "features:1"]
    assert structure.call_chain(2) == (0, 1, 2)


def test_an_output_of_the_model_passes_on_what_it_got() -> None:
    record = small_record()
    structure = Structure(record)
    assert structure.outputs(6) == ((("", record.ops[6].inputs[0])),)


def test_names_of_tensors() -> None:
    record = split_record()
    structure = Structure(record)
    assert [structure.value_label(value) for value in record.ops[2].inputs] == [
        "chunk_1_1[0]",
        "chunk_1_1[1]",
    ]
    record = small_record()
    assert [Structure(record).value_label(value) for value in record.ops[1].inputs] == [
        "input_1_0",
        "features.0.weight",
        "features.0.bias",
    ]
    record.values.append(record.values[0])
    constant = record.values[0]
    constant.kind, constant.param = "constant", None
    assert Structure(record).value_label(0) == "constant[4, 3, 3, 3]"
