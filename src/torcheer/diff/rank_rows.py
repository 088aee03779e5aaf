"""One run of a single process and the ranks of another, row by row: what each rank has of each value of A's.

A row is one operation as A and the ranks run it. What a rank returns is *known* when it is its part of a value of A's
(``cuts.py``), and *strange* otherwise; what does not depend on the model's inputs and has no counterpart is neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from torcheer.diff.arrays import Array, as_array
from torcheer.diff.cuts import Fit, Grid, Spread, best_fit, declared, grids
from torcheer.diff.graph import Graph, build
from torcheer.diff.layout import Close
from torcheer.diff.noise import Noise
from torcheer.diff.side import Recording
from torcheer.diff.value_map import weights_of
from torcheer.record.model import Op, Part
from torcheer.record.payload import is_kept
from torcheer.record.ranks import COLLECTIVES, RankedOp, align, plain_address

_MOST_SOUGHT = 300  # values of A's that one result is looked for among
_WHERE_COLLECTIVES_ARE = ("torch.distributed.", "autograd.Redistribute", *COLLECTIVES)


class RankRun:
    """The recording of one rank."""

    def __init__(self, rank: int, recording: Recording) -> None:
        self.rank = rank
        self.recording = recording
        self.record = recording.record
        self.parts = {part.value: part for part in self.record.parts if part.value is not None}
        self.param_parts = {
            part.param: part for part in self.record.parts if part.param is not None and part.gradient is None
        }
        self.is_wrapped = self.record.modules[0].type_name in ("DistributedDataParallel", "DataParallel")

    def array(self, value: int) -> Array | None:
        """What this rank has of a value; None where it was not kept."""
        name = self.record.saved.get(value)
        if name is None or not is_kept(self.recording.payloads, name):
            return None
        return as_array(self.recording.payloads[name])

    @cached_property
    def graph(self) -> Graph:
        """The run as ATen calls."""
        return build(self.recording)

    @cached_property
    def fed(self) -> set[int]:
        """Ops that depend on what the model was given."""
        found: set[int] = set()
        for op in self.record.ops:
            if op.kind == "input" or any(edge.op in found for edge in op.parents):
                found.add(op.index)
        return found

    @cached_property
    def collectives(self) -> set[int]:
        """Ops of the listing in which ranks exchange tensors."""
        ops, found = self.record.ops, set()
        for op in self.record.ops:
            if op.function.startswith(_WHERE_COLLECTIVES_ARE):
                outer = op
                while outer.owner is not None:
                    outer = ops[outer.owner]
                found.add(outer.index)
        return found

    @cached_property
    def weights(self) -> dict[str, tuple[Array, Part | None]]:
        """What this rank has of the params and buffers, by their addresses in the model without wrappers."""
        arrays = weights_of(self.recording)
        return {
            self.plain(param.address): (arrays[param.address], self.param_parts.get(index))
            for index, param in enumerate(self.record.params)
            if param.address in arrays
        }

    def plain(self, address: str) -> str:
        """An address as A has it."""
        return plain_address(address, is_wrapped=self.is_wrapped)


@dataclass
class Known:
    """What the ranks have of one result: the value of A's it is, and how that is spread."""

    value: int | None  # index into A's values; None: A has nothing like it
    fit: Fit | None
    close: Close | None = None


@dataclass
class Row:
    """One operation as A and the ranks run it."""

    position: int
    a: int | None  # index into A's ops
    ops: dict[int, int]  # rank → index into its ops
    results: list[Known] = field(default_factory=list)
    wrong: frozenset[int] = frozenset()  # ranks whose result is strange
    is_known: bool = False  # every result has been found in A

    @property
    def adds_up(self) -> bool:
        """Whether the ranks have summands of A's value."""
        fits = [one.fit for one in self.results if one.fit is not None and not one.fit.wrong]
        return any(cut.kind in ("sum", "mean") for fit in fits for cut in fit.spread)


class Rows:
    """All rows, in an order that is A's and each rank's own."""

    def __init__(self, a: Graph, ranks: list[RankRun], noise: Noise) -> None:
        self.a, self.ranks, self.noise = a, ranks, noise
        self.grids = grids(len(ranks))
        found: list[RankedOp] = align([a.record, *(run.record for run in ranks)])
        self.rows = [
            Row(place, one.ops[0], {rank: op for rank, op in enumerate(one.ops[1:]) if op is not None})
            for place, one in enumerate(found)
        ]
        self.row_of = {(rank, op): row for row in self.rows for rank, op in row.ops.items()}
        for row in self.rows:
            if row.ops:
                self._look(row)

    def op(self, row: Row, rank: int) -> Op:
        """The operation of a rank."""
        return self.ranks[rank].record.ops[row.ops[rank]]

    def parents(self, row: Row, rank: int) -> list[Row]:
        """Rows that a rank's operation reads from."""
        edges = self.op(row, rank).parents
        found = {edge.op: self.row_of.get((rank, edge.op)) for edge in edges}
        return [parent for parent in found.values() if parent is not None]

    def is_collective(self, row: Row) -> bool:
        """Whether ranks exchange tensors in it."""
        return any(op in self.ranks[rank].collectives for rank, op in row.ops.items())

    def has_strange_inputs(self, row: Row, rank: int) -> bool:
        """Whether what a rank was given is strange already."""
        asked = row.ops if self.is_collective(row) else [rank]
        return any(one in parent.wrong for one in asked if one in row.ops for parent in self.parents(row, one))

    # -- what each row's results are -----------------------------------------------------------------

    def _look(self, row: Row) -> None:
        if not any(op in self.ranks[rank].fed for rank, op in row.ops.items()) and row.a is None:
            return
        some = next(iter(row.ops))
        wrong: set[int] = set()
        items = self.op(row, some).outputs
        for number in range(len(items)):
            parts = self._parts(row, number)
            if not parts:
                continue
            known = self._known(row, number, parts)
            row.results.append(known)
            wrong |= set(parts) if known.fit is None else known.fit.wrong & set(row.ops)
        row.wrong = frozenset(wrong)
        row.is_known = bool(row.results) and not wrong

    def _parts(self, row: Row, number: int) -> dict[int, Array]:
        parts = {}
        for rank in row.ops:
            outputs = self.op(row, rank).outputs
            array = self.ranks[rank].array(outputs[number].value) if number < len(outputs) else None
            if array is not None:
                parts[rank] = array
        return parts

    def _known(self, row: Row, number: int, parts: dict[int, Array]) -> Known:
        told = self.told({rank: self.op(row, rank).outputs[number].value for rank in parts if rank in row.ops})
        paired = self._paired(row, number)
        best = Known(None, None)
        if paired is not None:
            best = self.compared(paired, parts, told)
            if best.fit is not None and not best.fit.wrong:
                return best
        if any(self.has_strange_inputs(row, rank) for rank in row.ops):
            return best
        for value in self._sought(row):
            found = self.compared(value, parts, told)
            if found.fit is None:
                continue
            if not found.fit.wrong:
                return found
            # One that is right on no rank is just another value.
            fewest = len(parts) if best.fit is None else len(best.fit.wrong)
            if len(found.fit.wrong) < fewest:
                best = found
        if best.fit is None:
            # Nothing of A's: it is at least put beside what it was made from.
            sources = [one for rank in row.ops for parent in self.parents(row, rank) for one in parent.results]
            tried = [self.compared(one.value, parts, None) for one in sources if one.value is not None]
            best = next((one for one in tried if one.fit is not None), best)
        return best

    def compared(self, value: int, parts: dict[int, Array], told: Spread | None, *, averages: bool = False) -> Known:
        """What the ranks have, as a value of A's."""
        whole, close = self.a.array(value), self.noise.close(value)
        return Known(value, best_fit(whole, parts, self.grids, close, told, averages=averages), close)

    def _paired(self, row: Row, number: int) -> int | None:
        if row.a is None:
            return None
        outputs = self.a.record.ops[row.a].outputs
        if number >= len(outputs) or not self.a.has_contents(outputs[number].value):
            return None
        return outputs[number].value

    def _sought(self, row: Row) -> list[int]:
        """Values of A's that a result may be, those near its place first."""
        near = row.a if row.a is not None else self._near(row)
        values = sorted(self._values, key=lambda entry: abs(entry[0] - near))
        return [value for _, value in values[:_MOST_SOUGHT]]

    def _near(self, row: Row) -> int:
        before = [one.a for one in self.rows[: row.position] if one.a is not None]
        return before[-1] if before else 0

    @cached_property
    def _values(self) -> list[tuple[int, int]]:
        ops = [op for op in self.a.record.ops if op.owner is None and op.kind != "output"]
        return [(op.index, item.value) for op in ops for item in op.outputs if self.a.has_contents(item.value)]

    def told(self, values: dict[int, int]) -> Spread | None:
        """How a value is spread, where every rank has a DTensor that says so."""
        parts = [self.ranks[rank].parts.get(value) for rank, value in values.items()]
        return self.told_by(list(values), parts)

    def told_by(self, ranks: list[int], parts: list[Part | None]) -> Spread | None:
        """What the parts of all ranks say; None where they do not agree, or are not of all ranks."""
        said = {(part.mesh, part.placements) for part in parts if part is not None}
        if len(said) != 1 or None in parts or len(parts) < len(self.ranks):
            return None
        ((mesh, placements),) = said
        if prod(mesh) != len(self.ranks):
            return None
        places = Grid(mesh).places
        if any(part is None or part.coordinate != places[rank] for rank, part in zip(ranks, parts, strict=True)):
            return None
        return declared(placements)
