"""The graph of a run: ``build`` makes plain data out of a record, ``to_dot`` writes it as Graphviz source.

Unrolled, a node is an operation and a box a module call; rolled, a node is a layer and a box a module, so a
loop is drawn once with its number of passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torcheer.history.structure import Structure
from torcheer.record.model import Op, Record
from torcheer.units import bytes_text, counted_text, shape_text

Graph = dict[str, Any]

FILL = {"input": "#98fb98", "output": "#ff9999", "params": "#e6e6e6", "op": "#ffffff"}
HEAD = (
    'rankdir="TB"',
    'labelloc="t"',
    'fontname="Helvetica"',
    'node [shape="box", style="rounded,filled", fontname="Helvetica", fontsize="10"]',
    'edge [fontname="Helvetica", fontsize="9", color="#555555"]',
)


def build(record: Record, rolled: bool = False) -> Graph:
    """Return nodes, edges and nested boxes of a run as plain data."""
    graph = _Rolled(Structure(record)) if rolled else _Unrolled(Structure(record))
    return {
        "model": record.run.model,
        "rolled": rolled,
        "nodes": list(graph.nodes()),
        "edges": list(graph.edges()),
        "boxes": list(graph.boxes()),
    }


def to_dot(graph: Graph) -> str:
    """Return the DOT source of a graph made by ``build``."""
    lines = [f"digraph {_quoted(graph['model'])} {{"]
    lines += [f"\t{line};" for line in HEAD]
    lines.append(f"\tlabel={_quoted(graph['model'])};")
    nodes: dict[str | None, list[Graph]] = {}
    for node in graph["nodes"]:
        nodes.setdefault(node["box"], []).append(node)
    boxes: dict[str | None, list[Graph]] = {}
    for box in graph["boxes"]:
        boxes.setdefault(box["parent"], []).append(box)
    lines += [f"\t{line}" for line in _dot_inside(None, nodes, boxes)]
    lines += [f"\t{_dot_edge(edge)}" for edge in graph["edges"]]
    return "\n".join([*lines, "}", ""])


class _Unrolled:
    """One node per operation, one box per module call."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.record = structure.record

    def nodes(self) -> Iterator[Graph]:
        for index in self.structure.listed:
            op = self.record.ops[index]
            yield self._node(self.node_of(op), self.structure.labels[index], op, self.box_of(op.call))

    def edges(self) -> Iterator[Graph]:
        edges: dict[tuple[str, str], Graph] = {}
        for index in self.structure.listed:
            for edge in self.record.ops[index].parents:
                parent = self.structure.lifted(edge.op)
                if parent != index:
                    ends = self.node_of(self.record.ops[parent]), self.node_of(self.record.ops[index])
                    shape = list(self.record.values[edge.value].shape)
                    new = {"from": ends[0], "to": ends[1], "how": edge.how, "shapes": []}
                    known = edges.setdefault(ends, new)
                    known["shapes"].append(shape)
                    known["how"] = "argument" if "argument" in (known["how"], edge.how) else edge.how
        yield from edges.values()

    def boxes(self) -> Iterator[Graph]:
        used = {call for op in self.structure.listed for call in self._calls_around(op)}
        for index in sorted(used):
            call = self.record.calls[index]
            module = self.record.modules[call.module]
            several = len(self.structure.module_calls[call.module]) > 1
            parent = self.box_of(call.parent) if call.parent is not None else None
            label = f"{module.address}:{call.call_index}" if several else module.address
            yield _box(f"call{index}", parent, label, module.type_name, 1)

    def node_of(self, op: Op) -> str:
        return f"op{op.index}"

    def box_of(self, call: int) -> str | None:
        return f"call{call}" if self.record.calls[call].parent is not None else None

    def _calls_around(self, op: int) -> tuple[int, ...]:
        return self.structure.call_chain(self.record.ops[op].call)[1:]

    def _node(self, name: str, label: str, op: Op, box: str | None, num_passes: int = 1) -> Graph:
        values = [self.record.values[item.value] for item in self.structure.outputs(op.index)]
        params = [self.record.params[param] for param in op.params]
        return {
            "id": name,
            "kind": op.kind,
            "label": label,
            "function": op.function,
            "num_passes": num_passes,
            "outputs": [
                {"shape": list(value.shape), "dtype": value.dtype, "size_bytes": value.size_bytes} for value in values
            ],
            "params": [
                {"address": p.address, "kind": p.kind, "shape": list(p.shape), "num_elements": p.num_elements}
                for p in params
            ],
            "box": box,
        }


class _Rolled(_Unrolled):
    """One node per layer, one box per module."""

    def nodes(self) -> Iterator[Graph]:
        for layer in self.record.layers:
            first = self.record.ops[layer.ops[0]]
            box = self.box_of(first.call)
            yield self._node(self.node_of(first), layer.label, first, box, len(layer.ops))

    def boxes(self) -> Iterator[Graph]:
        used: set[int] = set()
        for layer in self.record.layers:
            module: int | None = self.record.calls[self.record.ops[layer.ops[0]].call].module
            while module is not None and module not in used:
                used.add(module)
                module = self.record.modules[module].parent
        for index in sorted(used):
            entry = self.record.modules[index]
            if entry.parent is not None:
                calls = len(self.structure.module_calls.get(index, ()))
                parent = self._box(entry.parent)
                yield _box(f"module{index}", parent, entry.address, entry.type_name, calls)

    def node_of(self, op: Op) -> str:
        return f"layer{op.layer}"

    def box_of(self, call: int) -> str | None:
        return self._box(self.record.calls[call].module)

    def _box(self, module: int) -> str | None:
        return f"module{module}" if self.record.modules[module].parent is not None else None


def _box(name: str, parent: str | None, label: str, type_name: str, num_calls: int) -> Graph:
    return {"id": name, "parent": parent, "label": label, "type": type_name, "num_calls": num_calls}


def _dot_inside(
    box: str | None, nodes: dict[str | None, list[Graph]], boxes: dict[str | None, list[Graph]]
) -> Iterator[str]:
    for node in nodes.get(box, ()):
        yield _dot_node(node)
    for inner in boxes.get(box, ()):
        calls = f" ×{inner['num_calls']}" if inner["num_calls"] > 1 else ""
        yield f"subgraph {_quoted('cluster_' + inner['id'])} {{"
        yield f"\tlabel={_quoted(inner['label'] + calls, inner['type'])};"
        yield '\tstyle="rounded"; color="#888888"; fontsize="10";'
        for line in _dot_inside(inner["id"], nodes, boxes):
            yield f"\t{line}"
        yield "}"


def _dot_node(node: Graph) -> str:
    passes = f" ({node['num_passes']} passes)" if node["num_passes"] > 1 else ""
    lines = [node["label"] + passes]
    lines += [f"{shape_text(o['shape'])} · {bytes_text(o['size_bytes'])}" for o in node["outputs"][:3]]
    if len(node["outputs"]) > 3:
        lines.append(f"and {counted_text(len(node['outputs']) - 3, 'more output')}")
    params = [param for param in node["params"] if param["kind"] == "param"]
    if params:
        lines.append("params " + ", ".join(shape_text(param["shape"]) for param in params[:4]))
    kind = "params" if params and node["kind"] == "op" else node["kind"]
    return f'{_quoted(node["id"])} [label={_quoted(*lines)}, fillcolor="{FILL[kind]}"];'


def _dot_edge(edge: Graph) -> str:
    several = f"×{len(edge['shapes'])}" if len(edge["shapes"]) > 1 else ""
    attributes = [f"label={_quoted(several)}"] if several else []
    # Not passed on as an argument: the child reads memory the parent wrote.
    attributes += ['style="dashed"'] if edge["how"] == "memory" else []
    listed = f" [{', '.join(attributes)}]" if attributes else ""
    return f"{_quoted(edge['from'])} -> {_quoted(edge['to'])}{listed};"


def _quoted(*lines: str) -> str:
    """Return lines of any text as one DOT string."""
    escaped = []
    for line in lines:
        printable = "".join(char if char.isprintable() else " " for char in line)
        escaped.append(printable.replace("\\", "\\\\").replace('"', '\\"'))
    return '"' + "\\n".join(escaped) + '"'
