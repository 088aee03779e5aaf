"""ModelHistory: what ``log_forward_pass`` and ``load`` return.

Making one costs nothing however long the run was: every table behind it is worked out when first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from os import PathLike
from typing import Any, SupportsIndex, overload

from torcheer import shown
from torcheer.errors import CaptureError, LookupKeyError, NotSavedError
from torcheer.history import dataframe, html, text
from torcheer.history.aten_view import AtenView
from torcheer.history.collection import ViewMapping, ViewSequence
from torcheer.history.contents import Contents
from torcheer.history.layer_view import LayerView
from torcheer.history.lookup import Lookup, Target
from torcheer.history.module_view import CallView, ModuleView, ParamView
from torcheer.history.op_view import OpView
from torcheer.history.session import Session
from torcheer.history.structure import Structure
from torcheer.record import file
from torcheer.record.model import Diagnostic, Record
from torcheer.record.payload import Payloads
from torcheer.units import counted_text

_NOT_GIVEN = object()


class ModelHistory:
    """Everything that happened in one run of a model.

    ``history[key]`` takes a layer's label (``"conv2d_3_7"``, ``"conv2d_3"``, with a pass
    ``"conv2d_3_7:1"``), the address of a module whose output is meant (``"features.6"``, with a call
    ``"features.6:2"``), a position (``7``, ``-17``; inputs and outputs count) or a slice.
    """

    def __init__(
        self, record: Record | Callable[[], Record], payloads: Payloads, session: Session | None = None
    ) -> None:
        # A live run's record is built when it is first read: whoever only wants the output never pays for it.
        self._given = record
        self.payloads = payloads
        self._session = session
        self.drawing: Any = None  # the picture, when ``vis_opt`` asked for one: shows itself in a notebook

    @property
    def record(self) -> Record:
        """The record everything here is read from. A live run's is built, and completed, when it is read."""
        return self._given if isinstance(self._given, Record) else self._given()

    @overload
    def __getitem__(self, key: str) -> OpView | LayerView: ...

    @overload
    def __getitem__(self, key: SupportsIndex) -> OpView: ...

    @overload
    def __getitem__(self, key: slice) -> list[OpView]: ...

    def __getitem__(self, key: str | SupportsIndex | slice) -> OpView | LayerView | list[OpView]:
        if isinstance(key, str):
            return self._view(self.lookup.resolve(key))
        if isinstance(key, slice):
            return [OpView(self, op) for op in self.structure.listed[key]]
        return OpView(self, self.lookup.position(key))

    def __contains__(self, key: object) -> bool:
        if isinstance(key, (OpView, LayerView)):
            return key.history.record is self.record
        if isinstance(key, str):
            return self.lookup.find(key) is not None
        try:
            self.lookup.position(key)
        except LookupKeyError:
            return False
        return True

    def __len__(self) -> int:
        """Number of operations, inputs and outputs included."""
        return len(self.structure.listed)

    def __iter__(self) -> Iterator[OpView]:
        return (OpView(self, op) for op in self.structure.listed)

    def __dir__(self) -> list[str]:
        return sorted(name for name in super().__dir__() if not name.startswith("_"))

    def __repr__(self) -> str:
        counts = f"{counted_text(len(self), 'operation')} in {counted_text(len(self.record.layers), 'layer')}"
        return f"<ModelHistory of {self.record.run.model}: {counts}>"

    def __str__(self) -> str:
        return text.describe_history(self)

    def _repr_html_(self) -> str:
        picture = shown.notebook_picture(self) if self.drawing is None else self.drawing._repr_html_()
        return picture + html.history_html(self)

    def _ipython_key_completions_(self) -> list[str]:
        return self.lookup.completions

    @cached_property
    def contents(self) -> Contents:
        """Which tensors are kept, and where."""
        return Contents(self.record, self.payloads)

    @cached_property
    def structure(self) -> Structure:
        """Tables derived from the record: parents, children, passes, calls."""
        return Structure(self.record)

    @cached_property
    def lookup(self) -> Lookup:
        """What each key means."""
        return Lookup(self.structure)

    @cached_property
    def layers(self) -> Sequence[OpView | LayerView]:
        """The layers; one with a single pass is its operation."""
        return ViewSequence(len(self.record.layers), self._layer)

    @cached_property
    def modules(self) -> ViewMapping[ModuleView]:
        """Modules by address, called or not; the model itself is ``""``."""
        names = [(module.address, module.aliases) for module in self.record.modules]
        return ViewMapping("module", names, lambda index: ModuleView(self, index))

    @cached_property
    def params(self) -> ViewMapping[ParamView]:
        """Params and buffers by address."""
        names = [(param.address, param.aliases) for param in self.record.params]
        return ViewMapping("param", names, lambda index: ParamView(self, index))

    @property
    def calls(self) -> Sequence[CallView]:
        """Module calls in order; the model's own is the first."""
        return ViewSequence(len(self.record.calls), lambda index: CallView(self, index))

    @property
    def aten(self) -> Sequence[AtenView]:
        """ATen operations in order, those of recorded backward passes last."""
        return ViewSequence(len(self.record.aten), lambda index: AtenView(self, index))

    @property
    def layer_labels(self) -> list[str]:
        """Labels of the layers: ``conv2d_3_7``."""
        return [layer.label for layer in self.record.layers]

    @property
    def op_labels(self) -> list[str]:
        """Labels of the operations with their pass: ``conv2d_3_7:1``."""
        ops, layers = self.record.ops, self.record.layers
        return [f"{layers[ops[op].layer].label}:{ops[op].pass_index}" for op in self.structure.listed]

    @property
    def inputs(self) -> tuple[OpView, ...]:
        """The inputs of the model."""
        return tuple(view for view in self if view.is_input)

    @property
    def outputs(self) -> tuple[OpView, ...]:
        """The outputs of the model, as operations; ``output`` is what it returned."""
        return tuple(view for view in self if view.is_output)

    @property
    def is_recurrent(self) -> bool:
        """Whether a pass of a layer depends on an earlier pass of the same layer."""
        return self.structure.is_recurrent

    @property
    def is_branching(self) -> bool:
        """Whether an operation feeds several others or is fed by several."""
        return self.structure.is_branching

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What the reader must know to read this recording rightly."""
        return tuple(self.record.diagnostics)

    @property
    def output(self) -> Any:
        """What the model returned."""
        if self.record.run.error is not None:
            raise NotSavedError(
                f"The run returned nothing: it raised {self.record.run.error}. "
                "Read what it made until then: history[-1]."
            )
        if self._session is None:
            raise NotSavedError(
                "A recording from a file does not hold the model's output as it was returned. "
                "Read its tensors from history.outputs, each with .tensor_contents where it was saved."
            )
        return self._session.output

    def log_backward(self, loss: Any = _NOT_GIVEN, **kwargs: Any) -> AbstractContextManager[Any] | None:
        """Run ``loss.backward(**kwargs)`` and add it to the record; without a loss, return a context manager
        that adds the backward pass run inside it: ``with history.log_backward(): loss.backward()``.
        """
        if self._session is None:
            raise CaptureError(
                "A recording from a file has no autograd graph to run backward through. "
                "Record the model again with log_forward_pass, then call log_backward on that history."
            )
        if loss is _NOT_GIVEN:
            if kwargs:
                raise TypeError(f"log_backward() got {', '.join(kwargs)} without a loss to pass them on to")
            return self._session.watching_backward()
        if loss is None:
            raise CaptureError(
                "The loss is None. Pass the tensor to run backward from; Hugging Face models return a loss "
                "only when called with labels."
            )
        self._session.backward(loss, **kwargs)
        return None

    def draw(
        self,
        path: str | PathLike[str] | None = None,
        *,
        rolled: bool = False,
        depth: int | None = None,
        direction: str = "down",
        colour_by: str = "kind",
        gradients: bool = False,
        level: str = "function",
        theme: str = "light",
    ) -> Any:
        """Draw the graph of the run, to a file if a path is given: .svg, .png, .pdf, .dot, .html.

        Returns the picture: it shows itself in a notebook and has ``save(path)``, ``svg``, ``png``, ``pdf``, ``dot``.

        rolled: draw a loop and a row of equal blocks once, with their number, instead of every operation.
        depth: how many levels of modules to open; None opens all.
        direction: ``"down"`` or ``"right"``.
        colour_by: ``"kind"`` (inputs, outputs, params, buffers), a share: ``"time"``, ``"backward"`` (time),
            ``"memory"``, ``"flops"``, ``"params"``; ``"nan"`` (NaN and Inf); or ``"gradient"`` (norms).
        gradients: also draw the gradients that recorded backward passes saw, as dotted lines back.
        level: ``"function"``, or ``"aten"`` to draw the ATen calls inside the operations.
        theme: ``"light"`` or ``"dark"``.
        """
        picture = shown.picture(
            self,
            rolled=rolled,
            depth=depth,
            direction=direction,
            colour_by=colour_by,
            gradients=gradients,
            level=level,
            theme=theme,
        )
        if path is not None:
            picture.save(path)
        return picture

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> None:
        """Write the recording to a file that ``torcheer.load`` opens."""
        file.write(self.record, self.payloads, path, overwrite=overwrite)

    def to_dataframe(self, kind: str = "layers") -> Any:
        """Return a table as a ``pandas.DataFrame``: "layers", "ops", "modules", "params" or "aten"."""
        return dataframe.to_dataframe(self, kind)

    def op_view(self, index: int) -> OpView:
        """Return the view of an op by its number in the record."""
        return OpView(self, index)

    def _layer(self, index: int) -> OpView | LayerView:
        ops = self.record.layers[index].ops
        return OpView(self, ops[0]) if len(ops) == 1 else LayerView(self, index)

    def _view(self, target: Target) -> OpView | LayerView:
        return LayerView(self, target.layer) if target.layer is not None else OpView(self, target.ops[0])
