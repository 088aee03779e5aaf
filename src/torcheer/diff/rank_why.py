"""What is wrong at the first divergence of a run that is spread over ranks, in the user's terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torcheer.diff.arrays import Array
from torcheer.diff.comparison import Divergence, head
from torcheer.diff.cuts import Grid, Parts, Spread, best_fit, piece
from torcheer.diff.graph import Graph, Node, computes, plain_arguments
from torcheer.diff.layout import Close
from torcheer.diff.numbers import Tolerance, distance
from torcheer.diff.place import Place, place_of
from torcheer.diff.rank_rows import Row, Rows
from torcheer.diff.value_map import weights_of
from torcheer.record.model import Op

_RANDOM = ("dropout", "bernoulli", "rand", "normal", "multinomial", "uniform", "exponential")
_EXACT = Close(1e-6, 1e-5)  # weights are copied, and at most rounded


@dataclass
class Blame:
    """A row, and the ranks on which it goes wrong."""

    row: Row
    ranks: frozenset[int]
    used_by: Row | None = None  # where its summands are used as if they were the sum
    is_early: bool = False  # it does to each summand what A does to the sum

    def is_random(self, rows: Rows) -> bool:
        """Whether it draws random numbers."""
        return any(rows.op(self.row, rank).name.startswith(_RANDOM) for rank in self.row.ops)


def ranks_text(ranks: frozenset[int] | set[int]) -> str:
    """``rank 1``, ``ranks 0 and 1``"""
    one = sorted(ranks)
    return f"rank {one[0]}" if len(one) == 1 else f"ranks {', '.join(map(str, one[:-1]))} and {one[-1]}"


def describe(rows: Rows, blame: Blame) -> Divergence:
    """A divergence with its ranks, places and reason."""
    row = blame.row
    kind, why, ranks = _reason(rows, blame)
    rank = min(ranks)
    place_a = None if row.a is None else _place(rows.a, rows.a.record.ops[row.a])
    place_b = _place(rows.ranks[rank].graph, rows.op(row, rank))
    found = Divergence(kind, "", place_a, place_b, why=why, ranks=tuple(sorted(ranks)))
    _add_numbers(rows, row, rank, found)
    line = f" at {place_b.frame.where}" if place_b.frame else ""
    module = f" in {rows.ranks[rank].plain(place_b.module)}" if place_b.module else ""
    found.headline = f"{ranks_text(ranks)}: {place_b.op}{module}{line}: {found.why}"
    return found


def _place(graph: Graph, op: Op) -> Place:
    inside = [graph.record.aten[call].function for call in op.aten]
    named = next((function for function in inside if computes(function)), inside[-1] if inside else "")
    name = named.split(".")[1] if named.count(".") else op.name
    outputs = tuple(item.value for item in op.outputs)
    return place_of(graph, Node(-1, name, op, op.inputs, outputs, op.index))


def _add_numbers(rows: Rows, row: Row, rank: int, found: Divergence) -> None:
    """What the rank should have had, and what it has."""
    for number, one in enumerate(row.results):
        if one.value is None or one.fit is None or rank not in one.fit.wrong or rank not in row.ops:
            continue
        parts = rows._parts(row, number)
        if any(cut.kind in ("sum", "mean") for cut in one.fit.spread):
            continue
        grid = next(grid for grid in rows.grids if len(grid.shape) == len(one.fit.spread))
        expected = piece(rows.a.array(one.value), parts, grid, one.fit.spread, rank)
        if expected is not None and expected.shape == parts[rank].shape:
            peak = 0.0 if one.close is None else one.close.peak
            found.distance = distance(parts[rank], expected, Tolerance(0.0, peak)).turned()
            found.heads = head(expected), head(parts[rank])
            factor = _factor(expected, parts[rank])
            found.why += f"; it is {factor:.4g} times what it should be" if factor is not None else ""
        return


def _factor(expected: Array, found: Array) -> float | None:
    """The number one tensor is times the other; None where it is not."""
    if expected.dtype.kind != "f" or found.dtype.kind != "f" or not expected.any():
        return None
    a, b = expected.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    factor = float(a @ b) / float(a @ a)
    rest = float(np.linalg.norm(b - factor * a)) / max(float(np.linalg.norm(b)), 1e-30)
    return factor if rest < 1e-4 and np.isfinite(factor) and abs(factor - 1) > 1e-4 else None


# -- reasons -------------------------------------------------------------------------------------------


def _reason(rows: Rows, blame: Blame) -> tuple[str, str, frozenset[int]]:
    """What kind of mistake it is, in words, and on which ranks."""
    row, ranks = blame.row, blame.ranks
    if blame.used_by is not None:
        return "missing", _unsummed_text(rows, blame), ranks
    if blame.is_early:
        return "op", "every rank does this to its summand of A's result, before the summands are added up", ranks
    if any(rows.op(row, rank).kind == "input" for rank in row.ops):
        return "input", "what it was given is not its part of what A was given", ranks
    if len(row.ops) < len(rows.ranks):
        return "extra", f"only {ranks_text(set(row.ops))} of {len(rows.ranks)} do this", ranks
    params = _wrong_params(rows, row)
    if params:
        blamed = frozenset(rank for _, wrong, _ in params for rank in wrong)
        return "param", "; ".join(text for _, _, text in params), blamed
    if blame.is_random(rows):
        return "random", "it draws other random numbers: seed every rank alike where all hold the same tensor", ranks
    arguments = wrong_arguments(rows, row)
    if arguments is not None:
        return "op", arguments[1], arguments[0]
    if "batchnorm" in rows.op(row, min(row.ops)).name and any(rows.ranks[rank].record.run.training for rank in ranks):
        return "op", "each rank takes mean and variance of its own batch; SyncBatchNorm takes them of all", ranks
    return "op", "of what A is given, it makes something that is no part of A's result", ranks


def _unsummed_text(rows: Rows, blame: Blame) -> str:
    assert blame.used_by is not None
    user = blame.used_by
    rank = min(blame.ranks & set(user.ops)) if blame.ranks & set(user.ops) else min(user.ops)
    op = rows.op(user, rank)
    if op.kind == "output":
        return "every rank has a summand of A's result, and it is returned without being added up (no all-reduce)"
    place = _place(rows.ranks[rank].graph, op)
    where = f" at {place.frame.file}:{place.frame.line}" if place.frame else ""
    return (
        f"every rank has a summand of A's result, and {place.op}{where} uses it without its being added up "
        "(no all-reduce)"
    )


def _wrong_params(rows: Rows, row: Row) -> list[tuple[str, frozenset[int], str]]:
    """Params the operation reads that are not the ranks' parts of A's: address, ranks, what they are."""
    found = []
    of_a = weights_of(rows.a.recording)
    for rank in [min(row.ops)]:
        run = rows.ranks[rank]
        for index in rows.op(row, rank).params:
            if run.record.params[index].kind == "buffer" and run.record.run.training:
                continue  # it is written, and not read
            address = run.plain(run.record.params[index].address)
            whole = of_a.get(address)
            held = [one.weights.get(address) for one in rows.ranks]
            if whole is None or any(one is None for one in held):
                continue
            parts = {place: one[0] for place, one in enumerate(held) if one is not None}
            told = rows.told_by(list(parts), [one[1] for one in held if one is not None])
            fit = best_fit(whole, parts, rows.grids, _EXACT, told)
            if fit is not None and any(cut.kind in ("sum", "mean") for cut in fit.spread):
                fit = best_fit(whole, parts, rows.grids, _EXACT, (fit.spread[0]._replace(kind="whole"),))
            if fit is not None and fit.wrong:
                found.append((address, fit.wrong, _param_text(rows, address, whole, parts, fit.spread, fit.wrong)))
    return found


def _param_text(
    rows: Rows, address: str, whole: Array, parts: Parts, spread: Spread, wrong: frozenset[int]
) -> str:  # fmt: skip
    grid: Grid = next(grid for grid in rows.grids if len(grid.shape) == len(spread))
    pieces = {rank: piece(whole, parts, grid, spread, rank) for rank in parts}
    is_cut = any(cut.kind == "cut" for cut in spread)
    texts = []
    for rank in sorted(wrong):
        others = [o for o, p in pieces.items() if p is not None and o != rank and np.array_equal(p, parts[rank])]
        expected = pieces[rank]
        factor = None if expected is None or expected.shape != parts[rank].shape else _factor(expected, parts[rank])
        if is_cut and others:
            texts.append(f"rank {rank} has rank {others[0]}'s part of {address}")
        elif factor is not None:
            texts.append(f"rank {rank}'s {address} is {factor:.4g} times A's")
        else:
            texts.append(f"rank {rank}'s {address} is not {'its part of ' if is_cut else ''}A's")
    return ", ".join(texts)


def wrong_arguments(rows: Rows, row: Row) -> tuple[frozenset[int], str] | None:
    """Ranks whose arguments are neither A's nor, without a counterpart in A, those of the others."""
    said = {rank: plain_arguments(rows.op(row, rank)) for rank in row.ops}
    if row.a is not None:
        expected = plain_arguments(rows.a.record.ops[row.a])
        wrong = frozenset(rank for rank, own in said.items() if own != expected)
        if wrong and len(wrong) < len(said):
            rank = min(wrong)
            return wrong, f"its arguments differ: A has {expected}, rank {rank} has {said[rank]}"
        return None
    right = frozenset(said) - row.wrong
    if not right or not row.wrong:
        return None
    first, other = min(row.wrong), min(right)
    if said[first] == said[other]:
        return None
    return row.wrong, f"its arguments differ: rank {other} has {said[other]}, rank {first} has {said[first]}"
