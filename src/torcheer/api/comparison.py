"""``tl.compare``: two models, two histories or two recordings, and the first place where they disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torcheer.api.compare import copy_weights, is_onnx, side_of
from torcheer.api.history import is_paddle
from torcheer.api.ranks import compare_with_ranks, is_of_ranks
from torcheer.api.recorded import is_recorded, recording_of
from torcheer.errors import CaptureError, ComparisonError, TorcheerError

if TYPE_CHECKING:
    from torcheer.diff.comparison import Comparison
    from torcheer.diff.runs import Runs
    from torcheer.diff.side import Side

_WEIGHTS = ("own", "copy", "equal")


def compare(
    a: Any,
    b: Any,
    x: Any = None,
    *,
    x_b: Any = None,
    atol: float | None = None,
    rtol: float | None = None,
    weights: str = "own",
    pick: Any = None,
    backward: bool | None = None,
    steps: int = 0,
    loss: Any = None,
    optimizers: Any = None,
) -> Comparison:
    """Compare two implementations of one network, and name the first place where they disagree.

    ``compare(reference, new, x)`` takes two models and an input; ``compare(history_a, history_b)`` two histories, or
    paths of saved recordings; ``compare(history, ranks)`` and ``compare(model, ranks, x)`` one process with all ranks
    of a distributed run, which ``tl.load(folder)`` opens. The result is true when the two are equal; printed, it says
    where they part.

    x: the input of both; a tensor, a tuple of positional arguments or a dict of keyword arguments. ``x_b``: B's, where
        it takes another form of it.
    atol, rtol: count ``|a - b| <= atol + rtol * |a|`` as equal. Without them the tolerance is measured: the reference
        runs again with rounding errors put in.
    weights: "own": the models have the same weights already; "copy": B gets A's, carried over by kinds and shapes;
        "equal": both get weights drawn from what their layers are. The models get their own back.
    pick: what to compare of the outputs: a function from a model's output to tensors in it, or one for each model.
    backward: also compare gradients where the outputs agree. None: where A is in training mode or a loss is given.
    steps: training steps to compare, with ``loss`` (a function of the model's output, or one for each) and
        ``optimizers`` (one for each model; without them plain gradient descent).

    Models, gradients, optimizers and random state are left as they were.
    """
    # numpy, and the frameworks: only a comparison needs them.
    from torcheer.diff.compare import compare_runs
    from torcheer.diff.learning import Learning
    from torcheer.diff.notes import is_training, note_on_gradients
    from torcheer.diff.numbers import Tolerance
    from torcheer.diff.runs import Runs

    given = None if atol is None and rtol is None else Tolerance(atol or 0.0, rtol or 0.0)
    if is_of_ranks(a) or is_of_ranks(b):
        return compare_with_ranks(a, b, x, given, loss)
    if weights not in _WEIGHTS:
        raise ComparisonError(f"weights is {weights!r}. It takes one of {', '.join(map(repr, _WEIGHTS))}.")
    if is_recorded(a) or is_recorded(b):
        return compare_runs(Runs((recording_of(a, "A"), recording_of(b, "B"))), given)
    if x is None:
        raise ComparisonError("compare(a, b, x) needs an input to run the models on: pass x.")
    if a is b and steps:
        raise ComparisonError("a and b are one model, which would be trained twice. Pass copy.deepcopy(model) as b.")
    losses, own = _two(loss, "loss"), _two(optimizers, "optimizers", is_pair=True)
    learns = bool(steps or loss is not None)
    inputs = (x, x if x_b is None else x_b)
    a, b, inputs, notes = _widened(a, b, inputs, is_free=optimizers is None)
    # These keep the models' own weights; a run that is repeated goes back to the weights it was compared with.
    sides: list[Side] = [] if weights == "own" else [side_of(model, None) for model in (a, b)]
    keepers = len(sides)
    try:
        _set_weights(weights, a, b)
        for name, model, inp, one, optimizer in zip("AB", (a, b), inputs, losses, own, strict=True):
            with _told_which(name):
                sides.append(side_of(model, inp, loss=one, optimizer=optimizer, writes_params=bool(steps)))
        runs = _run_both(sides[keepers:], (a, b), pick)
        can_learn = not any(is_onnx(model) for model in (a, b)) and is_training(runs.first[0].record)
        wants = learns or (can_learn if backward is None else backward)
        found = compare_runs(
            runs, given, Learning(wants, steps, loss is not None, given, learns or backward is True) if wants else None
        )
        if not wants and backward is None and found:
            found.notes += note_on_gradients(*runs.first)
        found.notes += notes
        return found
    finally:
        for side in reversed(sides):
            side.restore()


def assert_equal(a: Any, b: Any, x: Any = None, **options: Any) -> None:
    """Raise ``AssertionError`` with the comparison as its text unless ``compare`` finds the two equal.

    a, b, x: as for ``compare``, as are all further options.
    """
    found = compare(a, b, x, **options)
    if not found:
        raise AssertionError(str(found))


def _two(given: Any, name: str, *, is_pair: bool = False) -> Sequence[Any]:
    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise ComparisonError(f"{name} holds {len(given)}; pass one for each of the two models.")
        return given
    if is_pair and given is not None:
        raise ComparisonError(
            f"{name} is a list or tuple, and is needed for each model. Pass both: {name}=(for_a, for_b)."
        )
    return given, given


@contextmanager
def _told_which(name: str) -> Iterator[None]:
    """Errors say which of the two models they are about."""
    try:
        yield
    except CaptureError as error:
        remedy = "Where the two take their input in other forms, pass x_b for B."
        raise ComparisonError(f"{name}: {error} {remedy}") from error


def _run_both(sides: Sequence[Side], models: Sequence[Any], pick: Any) -> Runs:
    from torcheer.diff.runs import Runs  # numpy, as above

    picks = pick if isinstance(pick, (tuple, list)) else (pick, pick)
    recorded, picked = [], []
    for name, side, model, function in zip("AB", sides, models, picks, strict=True):
        try:
            with _told_which(name):
                recorded.append(side.record_forward())
        except TorcheerError:
            raise
        except Exception as error:
            # Whatever a model raises: the user has to know which of the two it was.
            raise ComparisonError(
                f"{name} ({type(model).__name__}) raised {type(error).__name__}: {error}. "
                "Call it by itself on this input first; where the two take their input in other forms, pass x_b for B."
            ) from error
        picked.append(None if function is None else _picked(side, function, name))
    return Runs((recorded[0], recorded[1]), (sides[0], sides[1]), (picked[0], picked[1]))


def _picked(side: Any, function: Callable[[Any], Any], name: str) -> tuple[str, ...]:
    paths: tuple[str, ...] | None = side.paths_of(function(side.output))
    if paths is None:
        raise ComparisonError(
            f"pick returned something for {name} that is no tensor of the model's output. "
            "It has to pick tensors out of the output as they are: lambda out: out.logits."
        )
    return paths


def _set_weights(weights: str, a: Any, b: Any) -> None:
    if weights == "copy":
        copy_weights(a, b)
    elif weights == "equal":
        from torcheer.api.model_summary import equal_weights  # only where it is asked for

        equal_weights(a, b)


def _widened(a: Any, b: Any, inputs: Any, *, is_free: bool) -> tuple[Any, Any, Any, list[str]]:
    """Low precision hides what differs: such models are compared as copies in float32.

    is_free: no optimizer of the user's holds the models' own parameters.
    """
    if is_paddle(a) or is_paddle(b) or not is_free:
        return a, b, inputs, []
    from torcheer.capture.torch.widen import is_low, widened  # torch takes seconds to import

    low = [name for name, model in zip("AB", (a, b), strict=True) if is_low(model)]
    if not low:
        return a, b, inputs, []
    note = f"{' and '.join(low)} in low precision: copies in float32, with weights rounded alike, were compared"
    sides = (a, inputs[0]), (b, inputs[1])
    wide = [widened(*side, other) for side, other in zip(sides, reversed(sides), strict=True)]
    return wide[0][0], wide[1][0], tuple(inp for _, inp in wide), [note]


__all__ = ["assert_equal", "compare"]
