"""Gradients of a run of one process and of the ranks of another."""

from __future__ import annotations

from torcheer.diff.arrays import Array, as_array
from torcheer.diff.comparison import DIVERGED, EQUAL, Comparison, TensorResult
from torcheer.diff.cuts import WHOLE, Cut, Parts, Spread, best_fit, size_of
from torcheer.diff.layout import Close
from torcheer.diff.rank_rows import RankRun, Rows
from torcheer.diff.rank_why import Blame, describe, ranks_text
from torcheer.diff.side import Recording
from torcheer.record.model import Part
from torcheer.record.payload import is_kept
from torcheer.record.ranks import plain_address

_CLOSE = Close(1e-4, 1e-3)  # sums over a batch and over ranks come in another order


def compare_gradients(result: Comparison, rows: Rows, of_a: dict[str, Array] | None = None) -> None:
    """Compare the gradients of params, and name the first in the order of the backward pass that differs.

    of_a: A's by address, where they are not in its recording.
    """
    own = _gradients(rows.a.recording, is_wrapped=False)
    of_a = of_a or {address: array for address, (array, _) in own.items()}
    of_ranks = [_gradients(run.recording, is_wrapped=run.is_wrapped) for run in rows.ranks]
    if not of_a and not any(of_ranks):
        return
    if not of_a or not all(of_ranks):
        why = "A has none: record its backward pass, too, or pass loss with the model" if not of_a else (
            "not every rank recorded a backward pass (history.log_backward) with its contents"
        )  # fmt: skip
        result.notes.append(f"gradients were not compared: {why}")
        return
    # What is zero but for rounding has no size of its own to be measured against.
    least = 1e-3 * max(size_of(whole) for whole in of_a.values())
    wrong: dict[str, tuple[frozenset[int], str]] = {}
    for address, whole in of_a.items():
        held = {rank: own[address] for rank, own in enumerate(of_ranks) if address in own}
        parts = {rank: array for rank, (array, _) in held.items()}
        told = rows.told_by(list(held), [part for _, part in held.values()])
        ranks, reason, error = _judge(rows, whole, parts, told, least)
        verdict = DIVERGED if reason else EQUAL
        result.gradients.append(TensorResult("gradient", address, [address], 0, verdict, error, reason))
        if reason:
            wrong[address] = ranks, reason
    if wrong:
        result.verdict = DIVERGED
        result.reasons.append(f"{len(wrong)} of {len(of_a)} gradients differ")
        _name_first(result, rows, wrong)


def _gradients(recording: Recording, *, is_wrapped: bool) -> dict[str, tuple[Array, Part | None]]:
    """Gradients of params by address, of the last backward pass, and what is said of their being spread."""
    record, found = recording.record, {}
    parts = {part.gradient: part for part in record.parts if part.gradient is not None}
    for index, one in enumerate(record.gradients):
        if one.param is not None and one.payload is not None and is_kept(recording.payloads, one.payload):
            address = plain_address(record.params[one.param].address, is_wrapped=is_wrapped)
            found[address] = as_array(recording.payloads[one.payload]), parts.get(index)
    return found


def _judge(
    rows: Rows, whole: Array, parts: Parts, told: Spread | None, least: float
) -> tuple[frozenset[int], str, float | None]:
    """Ranks whose gradient is wrong, why, and how far those that are right are apart."""
    everyone = frozenset(range(len(rows.ranks)))
    if len(parts) < len(rows.ranks):
        absent = everyone - set(parts)
        return absent, f"there is none on {ranks_text(absent)}", None
    fit = best_fit(whole, parts, rows.grids, _CLOSE, told, least_size=least)
    # What autograd left as summands, and says so, is added up when it is used.
    is_right = told is not None or (fit is not None and all(cut.kind in ("whole", "cut") for cut in fit.spread))
    if fit is not None and not fit.wrong and is_right:
        return frozenset(), "", fit.error
    many = len(parts)
    guesses: list[tuple[float, Spread | None, str]] = [
        (many, told, f"{many} times A's: added up over the ranks, not averaged"),
        (1 / many, told, f"A's divided by {many}: averaged once too often"),
    ]
    if all(part.shape == whole.shape for part in parts.values()):
        guesses = [
            (1, (Cut("mean"),), "each rank has the gradient of its own batch; they are not averaged over the ranks"),
            (1, (Cut("sum"),), "the ranks' gradients add up to A's; they are not added up over the ranks"),
            *((factor, said or (WHOLE,), text) for factor, said, text in guesses),
        ]
    for factor, spread, text in guesses:
        one = best_fit(whole * factor, parts, rows.grids, _CLOSE, spread, least_size=least)
        if one is not None and not one.wrong:
            return everyone, text, None
    ranks = everyone if fit is None or not fit.wrong else fit.wrong
    return ranks, f"differs on {ranks_text(ranks)}", None


def _name_first(result: Comparison, rows: Rows, wrong: dict[str, tuple[frozenset[int], str]]) -> None:
    """The last operation that reads such a param is the first that the backward pass comes to."""
    for row in reversed(rows.rows):
        for rank in sorted(row.ops):
            addresses = [address for address in _reads(rows.ranks[rank], row.ops[rank]) if address in wrong]
            if addresses:
                ranks, reason = wrong[addresses[0]]
                found = describe(rows, Blame(row, ranks & set(row.ops) or frozenset([rank])))
                where = found.headline.split(": ", 2)[1]
                found.kind, found.why = "gradient", reason
                found.headline = f"{ranks_text(ranks)}: the gradient of {addresses[0]}, read by {where}: {reason}"
                result.first_divergence = found
                return


def _reads(run: RankRun, op: int) -> list[str]:
    record = run.record
    return [run.plain(record.params[param].address) for param in record.ops[op].params]
