"""The public functions and the class that compare two models by their leaf modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torcheer.api.compare import side_of
from torcheer.api.history import is_paddle
from torcheer.errors import ComparisonError
from torcheer.shown import Tables

if TYPE_CHECKING:
    from torcheer.diff.leaf_outputs import FinalOutputsComparison, ModuleOutputsComparison
    from torcheer.diff.leaves import LeafGroup, LeavesComparison
    from torcheer.diff.numbers import Tolerance
    from torcheer.diff.side import Recording, Side
    from torcheer.record.model import Record

ATOL, RTOL = 1e-5, 1e-4  # single precision stays below them; TorchBug's rtol
INITIALISATIONS = ("attributes", "map", None)
Picker = Callable[[Any], Any]  # from what a model returned to the tensors to compare


class ModelSummary(Tables):
    """The leaf modules of a model by type and attributes, how many there are, and their parameters.

        target, new = tl.ModelSummary(old_model, "Target"), tl.ModelSummary(new_model, "New")
        target.print()
        target.compare(new).print()                       leaf modules missing or extraneous
        target.compare_invoked(new, x).print()            the same for those that forward calls
        target.compare_outputs(new, x).print()            what the models return
        target.compare_module_outputs(new, x).print()     what leaf modules return, by brute force

    model: the model to summarize.
    name: what it is called in the tables; None: its class.

    Each prints, is a table in a notebook, has ``to_json()``, and is true when nothing differs. ``self`` is the model to
    be reproduced, the argument the new one. ``x`` is as for ``tl.autodiff``. Both models are left as they were.

    For the outputs both models get equal weights first (``init``): "attributes" draws those of each layer from the
    hash of its type and attributes and of how many equal layers came before it; "map", which is also taken between two
    frameworks, gives the new model the weights of the target, carried over by kinds, shapes and order; None leaves each
    model its own. Both run on the same random numbers.
    """

    def __init__(self, model: Any, name: str | None = None) -> None:
        # numpy, and the frameworks.
        from torcheer.diff.leaves import summarize_leaves

        self.model = model
        self.record = _structure(model)
        self._summary = summarize_leaves(self.record, name)

    @property
    def name(self) -> str:
        """What the model is called."""
        return self._summary.name

    @property
    def groups(self) -> list[LeafGroup]:
        """Leaf modules of one type and the same attributes."""
        return self._summary.groups

    @property
    def num_params(self) -> int | None:
        """Numbers in all parameters of the model, each parameter once; None where some are not known yet."""
        return self._summary.num_params

    def to_dict(self) -> dict[str, Any]:
        """Return everything in it as plain data."""
        return self._summary.to_dict()

    def __str__(self) -> str:
        return str(self._summary)

    def __repr__(self) -> str:
        return repr(self._summary)

    def compare(self, other: ModelSummary) -> LeavesComparison:
        """Leaf modules that the models have, and which the other lacks or has too many of."""
        # As above.
        from torcheer.diff.leaves import compare_registered

        return compare_registered(self.record, other.record, self._names(other))

    def compare_invoked(self, other: ModelSummary, x: Any) -> LeavesComparison:
        """The same for the leaf modules that forward calls; names those that are registered and never used."""
        # As above.
        from torcheer.diff.leaves import compare_invoked

        with _Runs(self.model, other.model, x, None) as (run_a, run_b):
            return compare_invoked(run_a.record, run_b.record, self._names(other))

    def compare_outputs(
        self,
        other: ModelSummary,
        x: Any,
        *,
        target_output_fn: Picker | None = None,
        model_output_fn: Picker | None = None,
        init: str | None = "attributes",
        atol: float = ATOL,
        rtol: float = RTOL,
    ) -> FinalOutputsComparison:
        """What both models return; the functions pick the tensors to compare out of each one's output."""
        # As above.
        from torcheer.diff.autodiff import outputs_of
        from torcheer.diff.leaf_outputs import arrays_in, compare_final_outputs

        with _Runs(self.model, other.model, x, init) as runs:
            picked = [
                outputs_of(run) if function is None else arrays_in(function(side.output), name)
                for run, side, function, name in zip(
                    runs, runs.sides, (target_output_fn, model_output_fn), ("target_output_fn", "model_output_fn"),
                    strict=True,
                )
            ]  # fmt: skip
            return compare_final_outputs(picked[0], picked[1], _tolerance(atol, rtol), self._names(other))

    def compare_module_outputs(
        self,
        other: ModelSummary,
        x: Any,
        *,
        types: Sequence[str | type] | None = None,
        marked_only: bool = False,
        init: str | None = "attributes",
        atol: float = ATOL,
        rtol: float = RTOL,
    ) -> ModuleOutputsComparison:
        """What leaf modules return, each compared with all of the same type and attributes, whole batches.

        types: of these types alone, ``["Conv2d"]``.
        marked_only: instead, what marked modules return (``tl.mark``), of whatever type, each with each.
        """
        # As above.
        from torcheer.diff.leaf_outputs import compare_marked_outputs, compare_module_outputs

        names = None if types is None else [one if isinstance(one, str) else one.__name__ for one in types]
        with _Runs(self.model, other.model, x, init) as (run_a, run_b):
            if marked_only:
                marks = (_marks(self.model), _marks(other.model))
                return compare_marked_outputs(run_a, run_b, marks, _tolerance(atol, rtol), self._names(other))
            return compare_module_outputs(run_a, run_b, _tolerance(atol, rtol), self._names(other), types=names)

    def _names(self, other: Any) -> tuple[str, str]:
        if not isinstance(other, ModelSummary):
            raise ComparisonError(f"A {type(other).__name__} was given. Compare with tl.ModelSummary(model, name).")
        same = self.name == other.name
        return (f"{self.name} (A)", f"{other.name} (B)") if same else (self.name, other.name)


def equal_weights(target: Any, model: Any, *, by: str = "attributes", seed: int = 0, inp: Any = None) -> None:
    """Give two models equal weights, and leave them there. Buffers, running statistics among them, are set too.

    by: "attributes": each layer's from the hash of its type and attributes, and of how many equal layers came before
        it, so that two equal layers of one model differ; layers that only one model has do no harm.
        "map": the target's as above, carried over to the other by kinds, shapes and order of its layers. This is also
        what happens between two frameworks.
    seed: another gives other weights.
    inp: an input of both. With "map" they are run on it if only the order of their calls can tell which layer is which.
    """
    _initialise(side_of(target, inp), side_of(model, inp), by, seed, can_run=inp is not None)


def mark(module: Any, name: Any) -> None:
    """Mark a module with a name: ``compare_module_outputs(…, marked_only=True)`` then compares marked modules alone.

    The module itself is not changed: its attributes, pickle, copies and ``state_dict`` are as without a mark.
    """
    # As above.
    from torcheer.diff import marks

    _check_module(module)
    if not isinstance(name, str) or not name:
        raise ComparisonError(f"A mark is a name, and {name!r} is none. Call tl.mark(module, 'first layer').")
    marks.mark(module, name)


def mark_all(model: Any) -> dict[str, str]:
    """Mark every leaf module of a model that has no mark yet with its address and description; return all marks."""
    # As above.
    from torcheer.diff import marks
    from torcheer.diff.leaves import is_leaf

    record = _structure(model)
    inner = {module.parent for module in record.modules}
    described = {
        module.address: f"{module.address or module.type_name}: {module.type_name}({module.extra})"
        for position, module in enumerate(record.modules)
        if is_leaf(record, position, inner)
    }
    for address, module in _modules(model):
        if address in described and marks.mark_of(module) is None:
            marks.mark(module, described[address])
    return _marks(model)


def unmark(module: Any) -> int:
    """Take away the marks of a module and of all modules in it; return how many there were."""
    # As above.
    from torcheer.diff import marks

    return sum(marks.unmark(one) for _, one in _modules(module))


class _Runs:
    """Both models run once on equal weights; they are put back at the end, also when one raises."""

    def __init__(self, model_a: Any, model_b: Any, x: Any, init: str | None) -> None:
        if init not in INITIALISATIONS:
            raise ComparisonError(f"init is {init!r}. It takes one of {', '.join(map(repr, INITIALISATIONS))}.")
        if x is None:
            raise ComparisonError("Models are compared on an input: pass a tensor, a tuple of them, or a dict.")
        self.init = init
        self.sides: list[Any] = [side_of(model_a, x), side_of(model_b, x)]
        self._runs: tuple[Recording, Recording] | None = None

    def __enter__(self) -> _Runs:
        try:
            if self.init is not None:
                _initialise(self.sides[0], self.sides[1], self.init, seed=0, can_run=True)
            self._runs = (self.sides[0].record_forward(), self.sides[1].record_forward())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __iter__(self) -> Iterator[Recording]:
        assert self._runs is not None
        return iter(self._runs)

    def __exit__(self, *_: object) -> None:
        for side in self.sides:
            side.restore()


def _initialise(side_a: Side, side_b: Side, by: str, seed: int, *, can_run: bool) -> None:
    # As above.
    from torcheer.diff.layer_map import known_of, map_layers
    from torcheer.diff.param_map import check_complete
    from torcheer.diff.seeding import carried_weights, seeded_weights

    if by not in ("attributes", "map"):
        raise ComparisonError(f"by is {by!r}. It takes 'attributes' or 'map'.")
    if by == "attributes" and side_a.framework == side_b.framework:
        for side in (side_a, side_b):
            side.set_weights(seeded_weights(side.leaves(), side.weights(), seed))
        return
    found = map_layers(known_of(side_a, can_run=can_run), known_of(side_b, can_run=can_run))
    check_complete(found, ("the target", "the other model"), (side_a.weights(), side_b.weights()))
    carried_weights(found, side_a, side_b, seed)


def _structure(model: Any) -> Record:
    if is_paddle(model):
        # Paddle is an extra.
        from torcheer.capture.paddle.structure import structure_record as paddle_record

        return paddle_record(model)
    # torch takes seconds to import.
    from torcheer.capture.torch.profiled import structure_record

    _check_module(model)
    return structure_record(model)


def _modules(model: Any) -> list[tuple[str, Any]]:
    _check_module(model)
    if is_paddle(model):
        return list(model.named_sublayers(include_self=True))
    return list(model.named_modules())


def _marks(model: Any) -> dict[str, str]:
    # As above.
    from torcheer.diff import marks

    return marks.marks_in(_modules(model))


def _check_module(module: Any) -> None:
    if not is_paddle(module) and not hasattr(module, "named_modules"):
        raise ComparisonError(
            f"A {type(module).__name__} was given where a module is expected. "
            "Pass a torch.nn.Module or a paddle.nn.Layer."
        )


def _tolerance(atol: float, rtol: float) -> Tolerance:
    # As above.
    from torcheer.diff.numbers import Tolerance as Made

    given: tuple[tuple[str, Any], ...] = (("atol", atol), ("rtol", rtol))
    for name, value in given:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise ComparisonError(f"{name} is {value!r}. It takes a number that is not negative.")
    return Made(atol, rtol)


__all__ = ["ModelSummary", "equal_weights", "mark", "mark_all", "unmark"]
