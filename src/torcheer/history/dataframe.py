"""``history.to_dataframe(kind)``: the record's tables in plain values, one row per thing.

``TABLES`` is the documentation too: each column with its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from torcheer.errors import LookupKeyError, MissingExtraError, near_misses

if TYPE_CHECKING:
    from torcheer.history.model_history import ModelHistory


class Column(NamedTuple):
    """One column of a table."""

    meaning: str
    of: Callable[[Any], Any]  # the cell of a view


class Table(NamedTuple):
    """One kind of table."""

    rows: Callable[[ModelHistory], Iterable[Any]]
    columns: Mapping[str, Column]


def _labels(views: Iterable[Any]) -> tuple[str, ...]:
    return tuple(view.label for view in views)


def _num_params(view: Any) -> int:
    return sum(param.num_elements or 0 for param in view.params if param.kind == "param")


def _source(view: Any) -> str | None:
    return f"{view.source.file}:{view.source.line}" if view.source is not None else None


COMPUTED = {
    "function": Column("function called", lambda view: view.function),
    "shape": Column("shape of the first output; of a layer, where all passes agree", lambda view: view.shape),
    "dtype": Column("dtype of the first output; of a layer, where all passes agree", lambda view: view.dtype),
    "size_bytes": Column("bytes of all outputs", lambda view: view.size_bytes),
    "num_params": Column("numbers in the params read", _num_params),
    "module": Column("address of the innermost module around it", lambda view: view.module),
    "time_ns": Column("wall time, all passes of a layer together", lambda view: view.time_ns),
    "parents": Column("labels of the operations it got tensors from", lambda view: _labels(view.parents)),
    "children": Column("labels of the operations that read its output", lambda view: _labels(view.children)),
    "saved": Column("whether the contents are kept", lambda view: view.has_contents),
    "source": Column("file:line of the user's code", _source),
}

LAYERS = {
    "label": Column("label of the layer", lambda view: view.layer_label),
    "name": Column("short name of the operation", lambda view: view.name),
    "num_passes": Column("how often a loop ran it", lambda view: view.num_passes),
    **COMPUTED,
}

OPS = {
    "label": Column("label of the operation, with its pass where there are several", lambda view: view.label),
    "layer": Column("label of its layer", lambda view: view.layer_label),
    "pass_index": Column("which pass of its layer, from 1", lambda view: view.pass_index),
    "name": Column("short name of the operation", lambda view: view.name),
    "kind": Column("input, op or output", lambda view: view.op.kind),
    **COMPUTED,
    "backward_time_ns": Column("wall time of its part of the last backward pass", lambda view: view.backward_time_ns),
}

MODULES = {
    "address": Column("address; empty for the model itself", lambda view: view.address),
    "type_name": Column("class", lambda view: view.type_name),
    "extra": Column("settings as the module prints them", lambda view: view.extra),
    "training": Column("whether in training mode", lambda view: view.training),
    "num_calls": Column("how often it was called", lambda view: len(view.calls)),
    "num_params": Column("numbers in its own params, without modules inside", _num_params),
    "time_ns": Column("wall time of all its calls", lambda view: view.time_ns),
    "outputs": Column("labels of the operations that made its outputs", lambda view: _labels(view.output_ops)),
}

PARAMS = {
    "address": Column("address", lambda view: view.address),
    "kind": Column("param or buffer", lambda view: view.kind),
    "shape": Column("shape", lambda view: view.shape),
    "dtype": Column("dtype", lambda view: view.dtype),
    "device": Column("device", lambda view: view.device),
    "num_elements": Column("how many numbers", lambda view: view.num_elements),
    "size_bytes": Column("bytes", lambda view: view.size_bytes),
    "requires_grad": Column("whether it is trained", lambda view: view.requires_grad),
    "used_by": Column("labels of the operations that read it", lambda view: _labels(view.used_by)),
    "has_gradient": Column("whether its gradient is kept", lambda view: view.has_gradient),
}

ATEN = {
    "function": Column("ATen operation", lambda view: view.function),
    "phase": Column("forward, backward or recompute", lambda view: view.phase),
    "owner": Column("label of the operation that caused it", lambda view: view.owner.label if view.owner else None),
    "module": Column("address of the innermost module it ran for", lambda view: view.module),
    "shapes": Column("shapes of its outputs", lambda view: tuple(output.value.shape for output in view.outputs)),
    "node": Column("autograd node that ran it, in a backward pass", lambda view: view.node),
    "time_ns": Column("wall time", lambda view: view.time_ns),
}

TABLES: dict[str, Table] = {
    "layers": Table(lambda history: history.layers, LAYERS),
    "ops": Table(lambda history: history, OPS),
    "modules": Table(lambda history: history.modules.values(), MODULES),
    "params": Table(lambda history: history.params.values(), PARAMS),
    "aten": Table(lambda history: history.aten, ATEN),
}


def columns_of(history: ModelHistory, kind: str) -> dict[str, list[Any]]:
    """Return one table as lists by column name."""
    table = TABLES.get(kind)
    if table is None:
        kinds = ", ".join(repr(known) for known in TABLES)
        raise LookupKeyError(f"There is no table {kind!r}.{near_misses(str(kind), TABLES)} The tables: {kinds}")
    rows = list(table.rows(history))
    return {name: [column.of(row) for row in rows] for name, column in table.columns.items()}


def to_dataframe(history: ModelHistory, kind: str) -> Any:
    """Return one table as a ``pandas.DataFrame``."""
    columns = columns_of(history, kind)
    try:
        pandas = import_module("pandas")  # optional, and slow to import
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas", "to_dataframe") from error
    return pandas.DataFrame(columns)
