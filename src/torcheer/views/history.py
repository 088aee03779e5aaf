"""A run as the page draws it: ``build`` makes plain data out of a history, for JSON.

Tables are by column, so that 10,000 operations stay small and quick to read; a row has the index it has in the
record. -1 stands for "none" in columns of indices, None for "unknown" elsewhere. Every key is described in
``docs/design/pictures.md``.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from torcheer.history import ModelHistory
from torcheer.history.arguments import readable
from torcheer.history.frames import shown_path
from torcheer.history.structure import Structure
from torcheer.record.frames import source
from torcheer.record.model import Edge, Frame, Item, Op, Record
from torcheer.views.figures import figures_of, nothing

SCHEMA = "torcheer.history/1"
LONGEST_ARGUMENTS = 200  # characters: longer ones are cut
Table = dict[str, Any]
Row = TypeVar("Row")


def build(history: ModelHistory, figures: bool = False) -> dict[str, Any]:
    """Return what there is to show of a run.

    figures: also read every kept tensor for its statistics, and count FLOPs.
    """
    record, structure = history.record, history.structure
    functions, types, frames = _Pool[tuple[str, str]](), _Pool[tuple[Any, ...]](), _Pool[Frame]()
    data = {
        "schema": SCHEMA,
        "run": asdict(record.run),
        "ops": _ops(structure, functions),
        "edges": _listed_edges(structure),
        "aten": _aten(record, functions),
        "aten_edges": _edges((op.index, edge) for op in record.aten for edge in op.parents),
        "layers": _table(record.layers, label=lambda layer: layer.label, ops=lambda layer: list(layer.ops)),
        "modules": _modules(record),
        "calls": _calls(record),
        "values": _values(history, types),
        "params": _params(record),
        "sites": _sites(record, frames),
        "gradients": _table(
            record.gradients,
            backward=lambda gradient: gradient.backward,
            value=lambda gradient: _index(gradient.value),
            param=lambda gradient: _index(gradient.param),
        ),
        **(figures_of(history) if figures else nothing()),
        "diagnostics": _table(
            record.diagnostics,
            code=lambda diagnostic: diagnostic.code,
            message=lambda diagnostic: diagnostic.message,
            op=lambda diagnostic: _index(diagnostic.op),
            module=lambda diagnostic: _index(diagnostic.module),
        ),
    }
    data["functions"] = _table(functions.rows, name=lambda pair: pair[0], function=lambda pair: pair[1])
    data["types"] = _table(
        types.rows, shape=lambda kind: list(kind[0]), dtype=lambda kind: kind[1], device=lambda kind: kind[2]
    )
    data["frames"] = _table(
        frames.rows,
        file=lambda frame: shown_path(frame.file),
        line=lambda frame: frame.line,
        function=lambda frame: frame.function,
        text=lambda frame: linecache.getline(frame.file, frame.line).strip(),
    )
    return data


class _Pool(dict[Row, int]):
    """Equal things once: maps each to its row."""

    def __missing__(self, key: Row) -> int:
        self[key] = len(self)
        return self[key]

    @property
    def rows(self) -> list[Row]:
        return list(self)


def _table(rows: Sequence[Row], **columns: Callable[[Row], Any]) -> Table:
    """One column for each keyword, with what the function gives for each row."""
    return {"num": len(rows), **{name: [read(row) for row in rows] for name, read in columns.items()}}


def _index(index: int | None) -> int:
    return -1 if index is None else index


def _ops(structure: Structure, functions: _Pool[tuple[str, str]]) -> Table:
    return _table(
        structure.record.ops,
        kind=lambda op: op.kind,
        label=lambda op: structure.labels[op.index],
        function=lambda op: functions[op.name, op.function],
        call=lambda op: op.call,
        layer=lambda op: op.layer,
        **{"pass": lambda op: op.pass_index},
        owner=lambda op: _index(op.owner),
        outputs=lambda op: [item.value for item in structure.outputs(op.index)],
        params=lambda op: list(op.params),
        site=lambda op: _index(op.site),
        start_ns=lambda op: op.start_ns,
        time_ns=lambda op: op.time_ns,
        backward_time_ns=lambda op: op.backward_time_ns,
        arguments=lambda op: _arguments(structure, op),
        writes=lambda op: int(bool(op.writes)),
    )


def _arguments(structure: Structure, op: Op) -> str:
    positional = [repr(readable(structure, argument)) for argument in op.args]
    named = [f"{name}={readable(structure, argument)!r}" for name, argument in (op.kwargs or {}).items()]
    text = ", ".join(positional + named)
    return text if len(text) <= LONGEST_ARGUMENTS else text[: LONGEST_ARGUMENTS - 1] + "…"


def _listed_edges(structure: Structure) -> Table:
    """Edges between ops of the listing; what happens inside an op is that op's."""
    ops = structure.record.ops
    found = ((index, edge) for index in structure.listed for edge in ops[index].parents)
    lifted = ((index, edge._replace(op=structure.lifted(edge.op))) for index, edge in found)
    return _edges((index, edge) for index, edge in lifted if edge.op != index)


def _edges(edges: Iterable[tuple[int, Edge]]) -> Table:
    return _table(
        list(edges),
        **{"from": lambda pair: pair[1].op},
        to=lambda pair: pair[0],
        value=lambda pair: pair[1].value,
        memory=lambda pair: int(pair[1].how == "memory"),
        argument=lambda pair: pair[1].argument,
    )


def _aten(record: Record, functions: _Pool[tuple[str, str]]) -> Table:
    return _table(
        record.aten,
        function=lambda op: functions[op.name, op.function],
        owner=lambda op: _index(op.owner),
        call=lambda op: op.call,
        phase=lambda op: op.phase,
        outputs=lambda op: [item.value for item in op.outputs],
        time_ns=lambda op: op.time_ns,
        node=lambda op: op.node or "",
    )


def _modules(record: Record) -> Table:
    return _table(
        record.modules,
        address=lambda module: module.address,
        type=lambda module: module.type_name,
        qualified_type=lambda module: module.qualified_type,
        parent=lambda module: _index(module.parent),
        params=lambda module: list(module.params),
        extra=lambda module: module.extra,
        training=lambda module: module.training,
        aliases=lambda module: list(module.aliases),
    )


def _calls(record: Record) -> Table:
    return _table(
        record.calls,
        module=lambda call: call.module,
        call_index=lambda call: call.call_index,
        parent=lambda call: _index(call.parent),
        first_op=lambda call: call.first_op,
        end_op=lambda call: call.end_op,
        inputs=lambda call: _items(call.inputs),
        outputs=lambda call: _items(call.outputs),
        start_ns=lambda call: call.start_ns,
        time_ns=lambda call: call.time_ns,
        site=lambda call: _index(call.site),
        error=lambda call: call.error,
    )


def _items(items: tuple[Item, ...]) -> list[list[Any]]:
    return [[item.path, item.value] for item in items]


def _values(history: ModelHistory, types: _Pool[tuple[Any, ...]]) -> Table:
    kept = history.contents
    return _table(
        history.record.values,
        kind=lambda value: value.kind,
        type=lambda value: types[value.shape, value.dtype, value.device],
        producer=lambda value: _index(value.producer),
        param=lambda value: _index(value.param),
        size_bytes=lambda value: value.size_bytes,
        requires_grad=lambda value: int(value.requires_grad),
        saved=lambda value: int(kept.has(value.index)),
        grad_function=lambda value: value.grad_function,
    )


def _params(record: Record) -> Table:
    return _table(
        record.params,
        address=lambda param: param.address,
        kind=lambda param: param.kind,
        shape=lambda param: list(param.shape),
        dtype=lambda param: param.dtype,
        num_elements=lambda param: param.num_elements,
        size_bytes=lambda param: param.size_bytes,
        requires_grad=lambda param: param.requires_grad,
        aliases=lambda param: list(param.aliases),
    )


def _sites(record: Record, frames: _Pool[Frame]) -> Table:
    def source_of(found: tuple[Frame, ...]) -> int:
        frame = source(found)
        return -1 if frame is None else frames[frame]

    return _table(
        record.sites,
        frames=lambda site: [frames[frame] for frame in site.frames],
        source=lambda site: source_of(site.frames),
    )
