"""The layout, run as the page runs it: what must hold in every picture, on graphs made by hand and at random."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.pictures.scenes import chain, check, graph_of, item, lay_out, random_graph
from torcheer.views import engine

DEPTHS: list[int | None] = [None, 0, 1, 2]


@pytest.mark.parametrize("direction", ["down", "right"])
@pytest.mark.parametrize("seed", range(30))
def test_what_must_hold_holds_for_random_graphs(seed: int, direction: str) -> None:
    graph = random_graph(seed, num=20 + 3 * seed)
    check(lay_out(graph, direction=direction, depth=DEPTHS[seed % 4]), graph)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda scene: scene["boxes"][1].update(x=scene["boxes"][0]["x"], y=scene["boxes"][0]["y"]), "overlap"),
        (lambda scene: scene["boxes"][0].update(x=-1), "left of its parent"),
        (lambda scene: scene["routes"][0]["points"].reverse(), "border"),
        (lambda scene: scene["boxes"][0]["texts"][0].update(x=500), "leaves its box"),
        (lambda scene: scene["routes"][0].update(back=True), "back"),
        (lambda scene: scene["routes"].pop(), "drawn"),
        (lambda scene: scene["boxes"][2].update(x=500), "right of its parent"),
    ],
)
def test_the_checks_of_these_tests_can_fail(break_it: Any, message: str) -> None:
    graph = chain(4)
    scene = lay_out(graph)
    check(scene, graph)
    break_it(scene)
    with pytest.raises(AssertionError, match=message):
        check(scene, graph)


def test_a_picture_is_the_same_every_time() -> None:
    graph = random_graph(5, num=80)
    assert lay_out(graph) == lay_out(json.loads(json.dumps(graph)))


@pytest.mark.parametrize("seed", range(6))
def test_opening_and_closing_leaves_no_trace(seed: int) -> None:
    """Only what changes is laid out again; the picture is that of a layout made at once."""
    graph = random_graph(seed, num=60)
    boxes = sorted({one["parent"] for one in graph["items"]} - {-1})
    rng = random.Random(seed)
    choices = [[], boxes, *(sorted(rng.sample(boxes, rng.randrange(len(boxes) + 1))) for _ in range(12)), boxes]
    for before, choice in zip(choices[1:-1:3], choices[2::3], strict=False):  # one box more, one less
        choices += [before, sorted({*before, choice[0]} if choice else before), before[1:]]
    again = json.loads(engine.call("layoutGraphAgain", json.dumps(graph), choices))
    for choice, scene in zip(choices, again, strict=True):
        (fresh,) = json.loads(engine.call("layoutGraphAgain", json.dumps(graph), [choice]))
        assert_alike(scene, fresh)
        check(scene, graph)


def assert_alike(found: Any, wanted: Any) -> None:
    """Equal, but for the last digits of numbers that were moved twice."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, list):
        for one, other in zip(found, wanted, strict=True):
            assert_alike(one, other)
    else:
        assert found == (pytest.approx(wanted, abs=1e-6) if isinstance(wanted, float) else wanted)


def test_a_long_chain_is_straight_and_narrow() -> None:
    scene = lay_out(chain(300))
    assert len({round(box["x"] + box["width"] / 2, 3) for box in scene["boxes"]}) == 1
    assert scene["width"] < 200
    assert all(len(route["points"]) == 4 for route in scene["routes"])


def residual_net(num_blocks: int) -> dict[str, Any]:
    """Blocks of two convolutions with a connection round them, one box each."""
    items, edges = [item("input", role="input")], []
    last = 0
    for block in range(num_blocks):
        around = len(items)
        items.append(item(f"blocks.{block}", role="module"))
        items += [item(f"{name}_{block}", around) for name in ("conv", "relu", "conv2", "add")]
        edges += [(last, around + 1), (around + 1, around + 2), (around + 2, around + 3), (around + 3, around + 4)]
        edges.append((last, around + 4))
        last = around + 4
    items.append(item("output", role="output"))
    edges.append((last, len(items) - 1))
    return graph_of(items, edges)


def test_the_trunk_of_a_residual_net_is_straight_through_all_its_blocks() -> None:
    scene = lay_out(residual_net(40))
    middles = {round(box["x"] + box["width"] / 2, 3) for box in scene["boxes"] if box["form"] == "node"}
    assert len(middles) == 1
    assert scene["width"] < 260


def test_equal_blocks_are_laid_out_alike() -> None:
    scene = lay_out(residual_net(5))
    shapes = set()
    for index, box in enumerate(scene["boxes"]):
        if box["form"] == "open":
            inner = [b for b in scene["boxes"] if b["parent"] == index]
            shapes.add(tuple((round(b["x"] - box["x"], 3), round(b["y"] - box["y"], 3)) for b in inner))
    # The labels of the blocks differ, the places do not.
    assert len(shapes) == 1


def test_a_tensor_that_goes_everywhere_takes_one_lane() -> None:
    items = [item("input"), item("mask"), *(item(f"attention_{at}") for at in range(30))]
    edges = [(0, 2), *((at, at + 1) for at in range(2, 31)), *((1, at) for at in range(2, 32))]
    graph = graph_of(items, edges)
    scene = lay_out(graph)
    check(scene, graph)
    assert scene["width"] < 330


def test_a_loop_leads_back_round_what_is_in_it() -> None:
    graph = graph_of([item("a"), item("b"), item("c")], [(0, 1), (1, 2), (2, 0), (1, 1)])
    scene = lay_out(graph)
    check(scene, graph)
    back = {(route["from"], route["to"]): max(route["points"][::2]) for route in scene["routes"] if route["back"]}
    assert set(back) == {(2, 0), (1, 1)}
    assert back[2, 0] > back[1, 1] > max(box["x"] + box["width"] for box in scene["boxes"])


def test_many_beside_one_another_are_wrapped() -> None:
    graph = graph_of([item(f"input_{at}") for at in range(100)], [])
    scene = lay_out(graph)
    check(scene, graph)
    assert scene["width"] < 24 * 110


def test_closed_boxes_stand_for_what_is_in_them() -> None:
    scene = lay_out(residual_net(3), depth=0)
    assert [box["form"] for box in scene["boxes"]] == ["node", "closed", "closed", "closed", "node"]
    assert [(route["from"], route["to"], len(route["edges"])) for route in scene["routes"]] == [
        (0, 1, 2),
        (1, 2, 2),
        (2, 3, 2),
        (3, 4, 1),
    ]


def test_a_limit_on_boxes_chooses_the_depth() -> None:
    net = residual_net(10)
    assert len(lay_out(net, mostBoxes=20)["boxes"]) == 12
    assert len(lay_out(net, mostBoxes=60)["boxes"]) == 52
    assert len(lay_out(net, mostBoxes=1)["boxes"]) == 12  # the outermost are always shown


def test_gradients_run_beside_their_tensors() -> None:
    graph = chain(3)
    graph["edges"].append({"from": 2, "to": 1, "label": "", "kind": "gradient", "value": -1})
    there, back = lay_out(graph)["routes"][1:]
    assert (back["from"], back["to"], back["kind"]) == (there["to"], there["from"], "gradient")
    assert back["points"][1::2] == there["points"][::-1][::2]
    assert back["points"][0] < there["points"][-2]


@pytest.mark.parametrize("graph", [graph_of([], []), graph_of([item("one")], []), graph_of([item("")], [(0, 0)])])
def test_small_graphs(graph: dict[str, Any]) -> None:
    check(lay_out(graph), graph)


@pytest.mark.parametrize("name", ["W" * 400, "模型" * 90, "a<b>&\"'", "\ud83d\ude00", "\x00\x1b", "\u202e"])
def test_any_name_fits_its_box(name: str) -> None:
    graph = graph_of([item(name, lines=(name, name), out=name), item("b", role="module"), item(name, 1)], [(0, 2)])
    scene = lay_out(graph)
    check(scene, graph)
    assert scene["width"] < 400


def test_ten_thousand_operations_are_laid_out() -> None:
    graph = random_graph(1, num=10_000, num_loops=20)
    scene = lay_out(graph, direction="down")
    assert len(scene["boxes"]) == len(graph["items"])


def test_an_engine_lives_for_one_call() -> None:
    graph = json.dumps(chain(2))
    assert engine.call("layoutGraph", graph, {}) == engine.call("layoutGraph", graph, {})
