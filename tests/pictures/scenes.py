"""Graphs for the layout, and what must hold in every scene it makes."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

from torcheer.views import engine

HEADER = 22.0
STRIP = 16.0  # below a box: where its line begins and the shape is written
TINY = 0.05
Graph = dict[str, Any]
Scene = dict[str, Any]


def item(name: str, parent: int = -1, role: str = "op", lines: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {
        "id": name, "parent": parent, "role": role, "title": name, "lines": list(lines), "out": "1×64×8×8",
        "count": 1, "heat": -1, "key": name, "num": 1, **more,
    }  # fmt: skip


def graph_of(items: list[dict[str, Any]], edges: list[tuple[int, int]]) -> Graph:
    return {
        "title": "test",
        "items": items,
        "edges": [{"from": a, "to": b, "label": "", "kind": "tensor", "value": -1} for a, b in edges],
    }


def chain(num: int) -> Graph:
    return graph_of([item(f"op_{at}") for at in range(num)], [(at, at + 1) for at in range(num - 1)])


def random_graph(seed: int, num: int = 40, num_loops: int = 2) -> Graph:
    """Items in boxes in boxes, edges mostly from the last few, some from far away, some back."""
    rng = random.Random(seed)
    items: list[dict[str, Any]] = []
    leaves: list[int] = []
    around = [-1]
    while len(leaves) < num:
        if rng.random() < 0.15 and len(around) < 4:
            items.append(item(f"module.{len(items)}", around[-1], "module", ("Sequential",)))
            around.append(len(items) - 1)
        leaves.append(len(items))
        lines = ("weight " * rng.randrange(1, 4),) * rng.randrange(3)
        items.append(item("op_" + "x" * rng.randrange(30), around[-1], lines=lines, count=rng.choice([1, 1, 1, 5])))
        if rng.random() < 0.15 and len(around) > 1:
            around.pop()
    edges = set()
    for at in range(1, num):
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            edges.add((leaves[rng.randrange(max(0, at - 4), at)], leaves[at]))
        if rng.random() < 0.15:
            edges.add((leaves[rng.randrange(at)], leaves[at]))
    for _ in range(num_loops):
        at = rng.randrange(num)
        edges.add((leaves[at], leaves[rng.randrange(at + 1)]))
    return graph_of(items, sorted(edges))


def lay_out(graph: Graph, **options: Any) -> Scene:
    scene: Scene = json.loads(engine.call("layoutGraph", json.dumps(graph), options))
    return scene


def upright(scene: Scene) -> Scene:
    """The scene with x and y exchanged where it runs to the right, so that one set of checks does for both."""
    if scene["direction"] == "down":
        return scene
    turned = json.loads(json.dumps(scene))
    for box in turned["boxes"]:
        box["x"], box["y"], box["width"], box["height"] = box["y"], box["x"], box["height"], box["width"]
    for route in turned["routes"]:
        points = route["points"]
        route["points"] = [points[at + 1 - 2 * (at % 2)] for at in range(len(points))]
    return turned


def check(scene: Scene, graph: Graph) -> None:
    """Raise AssertionError where a scene is not as it must be."""
    check_boxes(scene)
    check_texts(scene)
    flat = upright(scene)
    for route in flat["routes"]:
        check_route(flat, route)
    drawn = sum(len(route["edges"]) for route in scene["routes"])
    if all(box["form"] != "closed" for box in scene["boxes"]):
        assert drawn == len(graph["edges"]), "not all edges are drawn"


def check_boxes(scene: Scene) -> None:
    boxes = scene["boxes"]
    siblings: dict[int, list[Any]] = {}
    for box in boxes:
        siblings.setdefault(box["parent"], []).append(box)
        if box["parent"] < 0:
            around = {"x": 0, "y": -HEADER, "width": scene["width"], "height": scene["height"] + HEADER}
        else:
            around = boxes[box["parent"]]
        assert around["x"] < box["x"], "left of its parent"
        assert around["y"] + HEADER < box["y"], "above its parent's header"
        assert box["x"] + box["width"] < around["x"] + around["width"], "right of its parent"
        assert box["y"] + box["height"] < around["y"] + around["height"], "below its parent"
    for group in siblings.values():
        group.sort(key=lambda box: box["y"])
        for at, first in enumerate(group):
            for second in group[at + 1 :]:
                if second["y"] >= first["y"] + first["height"]:
                    break
                apart = second["x"] >= first["x"] + first["width"] or first["x"] >= second["x"] + second["width"]
                assert apart, f"{first} and {second} overlap"


def check_texts(scene: Scene) -> None:
    for box in scene["boxes"]:
        spans = []
        for text in box["texts"]:
            left = text["x"] - {"left": 0, "middle": 0.5, "right": 1}[text["align"]] * text["width"]
            beside = text["role"] == "shape" and scene["direction"] == "right"
            assert left > 0, f"{text} leaves its box"
            assert beside or left + text["width"] < box["width"] + TINY, f"{text} leaves its box"
            assert 0 < text["y"] < box["height"] + (STRIP if text["role"] == "shape" else 0), f"{text} leaves its box"
            spans.append((left, left + text["width"], text["y"] - text["size"] * 0.75, text["y"]))
        for at, (left, right, top, bottom) in enumerate(spans):
            for other in spans[at + 1 :]:
                assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top, box["texts"]


def check_route(scene: Scene, route: Any) -> None:
    boxes = scene["boxes"]
    source, target = boxes[route["from"]], boxes[route["to"]]
    pairs = list(zip(route["points"][::2], route["points"][1::2], strict=True))
    for (x, y), box, edge in ((pairs[0], source, source["height"]), (pairs[-1], target, 0)):
        assert abs(y - box["y"] - edge) < TINY, "an end is not on the border"
        assert box["x"] - TINY <= x <= box["x"] + box["width"] + TINY, "an end is beside its box"
    assert route["back"] == (target["item"] <= source["item"]), "back or not"
    ends = {route["from"], route["to"]}
    for (x0, y0), (x1, y1) in itertools.pairwise(pairs):
        if not route["back"]:
            assert y1 >= y0 - TINY, "leads up"
        for index, box in enumerate(boxes):
            if index in ends or box["form"] == "open":
                continue
            # The curve between two points lies in the rectangle that they span.
            apart = (
                max(x0, x1) <= box["x"] + TINY
                or min(x0, x1) >= box["x"] + box["width"] - TINY
                or max(y0, y1) <= box["y"] + TINY
                or min(y0, y1) >= box["y"] + box["height"] - TINY
            )
            assert apart, f"passes through box {index}"
