"""Compare a run of one process with the ranks of a run that is spread over several.

What each rank has is put beside its part of A's value (``cuts.py``, ``rank_rows.py``). The first divergence is the
earliest operation that makes something strange on a rank where everything it reads is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from torcheer.diff.arrays import Array
from torcheer.diff.comparison import DIVERGED, EQUAL, UNDETERMINED, Comparison, MatchResult, OutputResult
from torcheer.diff.cuts import Fit
from torcheer.diff.graph import build
from torcheer.diff.noise import Noise
from torcheer.diff.notes import notes_about
from torcheer.diff.numbers import Tolerance
from torcheer.diff.place import label_of
from torcheer.diff.rank_gradients import compare_gradients
from torcheer.diff.rank_rows import Known, RankRun, Row, Rows
from torcheer.diff.rank_why import Blame, describe, ranks_text, wrong_arguments
from torcheer.diff.side import Recording
from torcheer.diff.value_map import weights_of
from torcheer.errors import ComparisonError


def compare_ranks(
    a: Recording,
    ranks: Sequence[Recording],
    given: Tolerance | None = None,
    noisy: Recording | None = None,
    gradients: dict[str, Array] | None = None,
) -> Comparison:
    """Compare one process with all ranks of another run, and name the first rank and operation that differ.

    noisy: A again, with rounding noise, where it could be run. gradients: A's, where its recording has none.
    """
    runs = [RankRun(rank, one) for rank, one in enumerate(ranks)]
    graph = build(a)
    noise = Noise(graph, None if noisy is None else build(noisy), given)
    rows = Rows(graph, runs, noise)
    names = graph.record.run.model, f"{runs[0].record.run.model} on {len(runs)} ranks"
    result = Comparison(names, EQUAL, records=(a, ranks[0]))
    result.tolerance = f"given: {given}" if given is not None else _source_of(noise)
    outputs = _judge(result, rows)
    result._matching = lambda: _matches(rows)
    result.notes += notes_about(a, ranks[0])
    if result.verdict == DIVERGED:
        blames = _first(rows, outputs)
        found = [describe(rows, blame) for blame in blames]
        result.first_divergence, result.candidates = found[0], found[1:]
        result.records = (a, ranks[found[0].ranks[0]])
        if not weights_of(a):
            result.notes.append(
                "A's recording does not hold its parameters, so those of the ranks were not compared with them: "
                "tl.compare(model, ranks, x) does"
            )
        if _is_chance(rows, blames[0]):
            result.verdict = UNDETERMINED
            result.reasons.append(
                "every rank draws random numbers of its own: compare in eval mode, or with dropout off"
            )
    elif result.verdict == EQUAL:
        compare_gradients(result, rows, gradients)
    return result


def _source_of(noise: Noise) -> str:
    if noise.is_measured:
        return f"{noise.factor:g} times what rounding does to A"
    return "fixed by dtype: a recording cannot be run again with noise"


# -- outputs -------------------------------------------------------------------------------------------


def _judge(result: Comparison, rows: Rows) -> list[tuple[Row, Known | None]]:
    """Judge every output of the model; those that differ, with what the ranks have of them."""
    ours = [row for row in rows.rows if row.a is not None and rows.a.record.ops[row.a].kind == "output"]
    if not ours:
        raise ComparisonError("A returned no tensor, so there is nothing to compare. Pass a model that returns one.")
    wrong: list[tuple[Row, Known | None]] = []
    for row in ours:
        assert row.a is not None
        (item,) = rows.a.record.ops[row.a].outputs
        if not rows.a.has_contents(item.value):
            raise ComparisonError(
                f"The contents of {item.path or 'the output'} were not kept in A's recording. "
                "Record with layers_to_save='all'."
            )
        parts = {rank: rows.ranks[rank].array(rows.op(row, rank).outputs[0].value) for rank in row.ops}
        kept = {rank: part for rank, part in parts.items() if part is not None}
        known, why = None, "the ranks return nothing there, or it was not kept"
        if len(kept) == len(rows.ranks):
            told = rows.told({rank: rows.op(row, rank).inputs[0] for rank in kept})
            is_scalar = rows.a.value(item.value).shape == ()
            known = rows.compared(item.value, kept, told, averages=is_scalar)
            why = _why_wrong(known, kept[0].shape, rows.a.value(item.value).shape, told=told is not None)
        bound = 0.0 if known is None or known.close is None else known.close.rms
        error = known.fit.error if known is not None and known.fit is not None and not why else None
        verdict = DIVERGED if why else EQUAL
        reason = f"{item.path or 'the output'}: {why}" if why else ""
        result.outputs.append(OutputResult(item.path, item.path, verdict, None, bound, reason, error))
        if why:
            wrong.append((row, known))
    if wrong:
        result.verdict = DIVERGED
        result.reasons += [one.reason for one in result.outputs if one.reason]
    return wrong


def _why_wrong(known: Known, part: tuple[int, ...], whole: tuple[int, ...], *, told: bool) -> str:
    """Why an output is not A's, "" where it is."""
    fit = known.fit
    if fit is None:
        return f"has shape {whole} in A, and no way to cut it gives the ranks their {part}"
    if fit.wrong:
        named = "every rank" if len(fit.wrong) > 1 and not _some_right(fit) else ranks_text(fit.wrong)
        return f"differs on {named}"
    if not told and any(cut.kind == "sum" for cut in fit.spread):
        return "every rank returns a summand of A's, and nothing adds them up"
    return ""


def _some_right(fit: Fit) -> bool:
    return fit.error > 0 or len(fit.wrong) == 1


# -- the first divergence ------------------------------------------------------------------------------


def _first(rows: Rows, outputs: list[tuple[Row, Known | None]]) -> list[Blame]:
    """Where the runs part, likeliest first."""
    found = []
    for row in _leading_to(rows, [row for row, _ in outputs]):
        ranks = _to_blame(rows, row)
        if ranks:
            found.append(_blame(rows, row, frozenset(ranks)))
    if not found:
        row, known = outputs[0]
        differ = frozenset() if known is None or known.fit is None else known.fit.wrong
        found = [_blame(rows, row, differ or frozenset(row.ops))]
    return found[:5]


def _blame(rows: Rows, row: Row, ranks: frozenset[int]) -> Blame:
    """What is to be blamed: the row, or where the summands come from that it takes for the sum."""
    source = None if rows.is_collective(row) or len(row.ops) < len(rows.ranks) else _summands(rows, row, ranks)
    if source is None or (row.a is None and wrong_arguments(rows, row) is not None):
        return Blame(row, ranks)
    if _is_added_up_later(rows, row):
        return Blame(row, ranks, is_early=True)
    return Blame(source, frozenset(source.ops), used_by=row)


def _leading_to(rows: Rows, outputs: list[Row]) -> list[Row]:
    """Rows with something strange that a wrong output follows from, in order."""
    seen: set[int] = set()
    todo = list(outputs)
    while todo:
        row = todo.pop()
        if row.position in seen:
            continue
        seen.add(row.position)
        for rank in row.ops:
            todo += [parent for parent in rows.parents(row, rank) if parent.wrong]
    return [row for row in rows.rows if row.position in seen and row.wrong]


def _to_blame(rows: Rows, row: Row) -> set[int]:
    """Ranks on which a row makes something strange of what is known."""
    given_strange = {rank for rank in row.ops if rows.has_strange_inputs(row, rank)}
    if given_strange and (rows.is_collective(row) or row.wrong >= set(row.ops)) and not _differ_apart(row):
        return set()
    return set(row.wrong) - given_strange


def _differ_apart(row: Row) -> bool:
    """Whether the ranks have parts that can be told from one another: not summands."""
    return any(one.fit is not None and 0 < len(one.fit.wrong) < len(row.ops) for one in row.results)


def _summands(rows: Rows, row: Row, ranks: frozenset[int]) -> Row | None:
    """Where the summands come from that a row reads."""
    for rank in sorted(ranks & set(row.ops)):
        source = next((one for one in rows.parents(row, rank) if one.is_known and one.adds_up), None)
        while source is not None:
            above = [one for one in rows.parents(source, rank) if one.is_known and one.adds_up]
            if not above:
                return source
            source = above[0]
    return None


def _is_added_up_later(rows: Rows, row: Row) -> bool:
    """Whether what a row makes is given to a collective, before anything else has a counterpart in A."""
    rank = min(row.ops)
    after = {row.position}
    for other in rows.rows[row.position + 1 :]:
        if rank in other.ops and any(one.position in after for one in rows.parents(other, rank)):
            if rows.is_collective(other):
                return True
            if other.a is None:
                after.add(other.position)
    return False


def _is_chance(rows: Rows, blame: Blame) -> bool:
    """Whether every rank draws numbers of its own, which no single process could have drawn."""
    return blame.row.wrong >= set(blame.row.ops) and len(blame.row.ops) > 1 and blame.is_random(rows)


def _matches(rows: Rows) -> tuple[list[MatchResult], tuple[int, int], tuple[int, int]]:
    found = []
    for row in rows.rows:
        if not row.is_known or not row.ops:
            continue
        rank = next(iter(row.ops))
        one = row.results[0]
        if one.fit is None or one.value is None:
            continue
        maker = rows.a.value(one.value).producer
        op_a = rows.a.record.ops[row.a if row.a is not None else maker or 0]
        label = label_of(rows.ranks[rank].record, rows.op(row, rank))
        spread = ", ".join(map(str, one.fit.spread))
        found.append(MatchResult(label_of(rows.a.record, op_a), label, one.fit.error, spread))
    ops_a = sum(op.kind == "op" and op.owner is None for op in rows.a.record.ops)
    ops_b = sum(any(rows.op(row, rank).kind == "op" for rank in row.ops) for row in rows.rows)
    known_a = {one.a for one in found}
    return found, (ops_a, ops_b), (min(len(known_a), ops_a), min(len(found), ops_b))
