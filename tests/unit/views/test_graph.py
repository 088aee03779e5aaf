"""The graph as data and as DOT source."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.unit.history.make_history import nested_record, shared_record, split_record
from tests.unit.make_record import loop_record, make_record, small_record
from torcheer.record.model import Edge, Record
from torcheer.views.graph import build, to_dot

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|->|[{}\[\];=,]|[A-Za-z_]+')
RECORDS = [small_record, loop_record, make_record, nested_record, shared_record, split_record]


class Dot:
    """A reader of the DOT that we write: strict, so that broken quoting or nesting fails."""

    def __init__(self, text: str) -> None:
        assert TOKEN.sub("", text).strip() == "", "text outside of tokens"
        self.tokens = TOKEN.findall(text)
        self.nodes: dict[str, tuple[str, ...]] = {}  # node → clusters around it
        self.edges: list[tuple[str, str]] = []
        self.clusters: dict[str, tuple[str, ...]] = {}
        self.labels: dict[str, str] = {}
        assert self.tokens[0] == "digraph"
        assert self.read(3, ()) == len(self.tokens)

    def read(self, at: int, around: tuple[str, ...]) -> int:
        """Read the statements of one block and return where it ends."""
        while self.tokens[at] != "}":
            if self.tokens[at] == "subgraph":
                name, brace = self.tokens[at + 1 : at + 3]
                assert brace == "{"
                assert name.startswith('"cluster_')
                assert name not in self.clusters
                self.clusters[name] = around
                at = self.read(at + 3, (*around, name))
                continue
            end = self.tokens.index(";", at)
            self.statement(self.tokens[at:end], around)
            at = end + 1
        return at + 1

    def statement(self, tokens: list[str], around: tuple[str, ...]) -> None:
        assert tokens.count("[") == tokens.count("]") <= 1
        if "->" in tokens:
            assert tokens[1] == "->"
            self.edges.append((tokens[0], tokens[2]))
        elif tokens[0].startswith('"'):
            assert tokens[0] not in self.nodes
            self.nodes[tokens[0]] = around
            self.labels[tokens[0]] = tokens[tokens.index("label") + 2]
        else:
            assert tokens[0] in {"node", "edge"} or tokens[1] == "="


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("make", RECORDS)
def test_dot_is_well_formed_and_complete(make: Callable[[], Record], rolled: bool) -> None:
    graph = build(make(), rolled)
    dot = Dot(to_dot(graph))
    assert len(dot.nodes) == len(graph["nodes"])
    assert len(dot.edges) == len(graph["edges"])
    assert {name for edge in dot.edges for name in edge} <= set(dot.nodes)
    assert len(dot.clusters) == len(graph["boxes"])
    parents = {box["id"]: box["parent"] for box in graph["boxes"]}
    for node in graph["nodes"]:
        around = []
        box = node["box"]
        while box is not None:
            around.append(f'"cluster_{box}"')
            box = parents[box]
        assert dot.nodes[f'"{node["id"]}"'] == tuple(reversed(around))


def test_the_reader_of_these_tests_can_fail() -> None:
    text = to_dot(build(small_record()))
    for broken in (
        text.replace("}", "", 1),
        text.replace('"op1"', '"op1', 1),
        text.replace("[label", "label", 1),
    ):
        with pytest.raises((AssertionError, IndexError, ValueError)):
            Dot(broken)


def test_unrolled() -> None:
    graph = build(small_record())
    assert (graph["model"], graph["rolled"]) == ("SmallNet", False)
    conv = graph["nodes"][1]
    assert conv == {
        "id": "op1",
        "kind": "op",
        "label": "conv2d_1_1",
        "function": "torch.conv2d",
        "num_passes": 1,
        "outputs": [{"shape": [1, 4, 8, 8], "dtype": "float32", "size_bytes": 1024}],
        "params": [
            {"address": "features.0.weight", "kind": "param", "shape": [4, 3, 3, 3], "num_elements": 108},
            {"address": "features.0.bias", "kind": "param", "shape": [4], "num_elements": 4},
        ],
        "box": "call2",
    }
    assert graph["edges"][0] == {"from": "op0", "to": "op1", "how": "argument", "shapes": [[1, 3, 8, 8]]}
    assert graph["boxes"][:2] == [
        {"id": "call1", "parent": None, "label": "features", "type": "Sequential", "num_calls": 1},
        {"id": "call2", "parent": "call1", "label": "features.0", "type": "Conv2d", "num_calls": 1},
    ]


def test_rolled_draws_a_loop_once() -> None:
    graph = build(loop_record(), rolled=True)
    assert [(node["label"], node["num_passes"]) for node in graph["nodes"]] == [
        ("input_1_0", 1),
        ("add_1_1", 3),
        ("output_1_2", 1),
    ]
    assert [(edge["from"], edge["to"]) for edge in graph["edges"]] == [
        ("layer0", "layer1"),
        ("layer1", "layer1"),
        ("layer1", "layer2"),
    ]
    assert '[label="add_1_1 (3 passes)\\n(2, 3) · 24 B"' in to_dot(graph)


def test_a_module_called_several_times() -> None:
    assert [box["label"] for box in build(shared_record())["boxes"]] == ["cell:1", "cell:2", "cell:3"]
    rolled = build(shared_record(), rolled=True)
    assert [(box["label"], box["num_calls"]) for box in rolled["boxes"]] == [("cell", 3)]
    assert [node["box"] for node in rolled["nodes"]] == [None, "module1", None]
    assert 'label="cell ×3\\nLinear"' in to_dot(rolled)


def test_operations_inside_others_are_not_drawn() -> None:
    record = nested_record()
    record.ops[1].parents += (Edge(3, record.ops[3].outputs[0].value, "memory", ""),)
    graph = build(record)
    assert [node["label"] for node in graph["nodes"]] == [
        "input_1_0",
        "double_1_1",
        "relu_1_2",
        "output_1_3",
    ]
    assert [(edge["from"], edge["to"]) for edge in graph["edges"]] == [
        ("op0", "op1"),
        ("op1", "op4"),
        ("op4", "op5"),
    ]


def test_several_tensors_between_two_operations_are_one_edge() -> None:
    graph = build(split_record())
    edge = next(edge for edge in graph["edges"] if edge["from"] == "op1")
    assert edge["shapes"] == [[2, 1], [2, 2]]
    assert '"op1" -> "op2" [label="×2"];' in to_dot(graph)


def test_memory_edges_are_dashed() -> None:
    record = small_record()
    record.ops[4].parents += (Edge(1, record.ops[1].outputs[0].value, "memory", ""),)
    assert '"op1" -> "op4" [style="dashed"];' in to_dot(build(record))


def test_colours() -> None:
    text = to_dot(build(small_record()))
    assert re.search(r'"op0" \[label="input_1_0.*fillcolor="#98fb98"\]', text)
    assert re.search(r'"op1" \[label="conv2d_1_1.*fillcolor="#e6e6e6"\]', text)
    assert re.search(r'"op2" \[label="relu_1_2.*fillcolor="#ffffff"\]', text)
    assert re.search(r'"op6" \[label="output_1_6.*fillcolor="#ff9999"\]', text)


@pytest.mark.parametrize("name", ['a"]; evil [', "back\\slash", "back\\", "new\nline", "\\N", "{<b>}", "\0"])
def test_any_name_is_safe(name: str) -> None:
    record = small_record()
    record.run.model = name
    record.modules[1].address = name
    record.modules[2].type_name = name
    record.layers[1].name = name
    dot = Dot(to_dot(build(record)))
    assert len(dot.nodes) == 7
    assert set(dot.nodes) == {f'"op{index}"' for index in range(7)}


def test_an_escape_is_shown_as_written() -> None:
    record = small_record()
    record.layers[1].name = 'a\\N"b'
    assert '"op1" [label="a\\\\N\\"b_1_1\\n(1, 4, 8, 8)' in to_dot(build(record))
