"""The histories of all ranks of one distributed run: what ``load`` returns when it is given several recordings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import overload

from torcheer.errors import RecordFileError
from torcheer.history.model_history import ModelHistory
from torcheer.record.ranks import Collective, RankedOp, align, collectives, first_mismatch
from torcheer.units import bytes_text, counted_text, seconds_text, shape_text

_SHOWN = 40  # operations that the text lists


class Ranks(Sequence[ModelHistory]):
    """One history per rank, in order of rank: ``ranks[0]``; ``print(ranks)`` shows them side by side."""

    def __init__(self, histories: Sequence[ModelHistory]) -> None:
        runs = [history.record.run for history in histories]
        numbers = [run.rank for run in runs]
        if None in numbers or len(set(numbers)) < len(numbers):
            raise RecordFileError(
                f"These recordings are of ranks {', '.join(map(str, numbers))}. Give load one recording of each rank "
                "of a run, made while torch.distributed was initialised; open others one by one."
            )
        if len({(run.model, run.world_size) for run in runs}) > 1:
            what = ", ".join(f"{run.model} (rank {run.rank} of {run.world_size})" for run in runs)
            raise RecordFileError(f"These recordings are not of one run: {what}. Give load the ranks of one run.")
        self._histories = sorted(histories, key=lambda history: history.record.run.rank or 0)

    @overload
    def __getitem__(self, rank: int) -> ModelHistory: ...

    @overload
    def __getitem__(self, rank: slice) -> Sequence[ModelHistory]: ...

    def __getitem__(self, rank: int | slice) -> ModelHistory | Sequence[ModelHistory]:
        return self._histories[rank]

    def __len__(self) -> int:
        return len(self._histories)

    @cached_property
    def ops(self) -> list[RankedOp]:
        """Every operation with its place in the record of each rank."""
        return align([history.record for history in self._histories])

    @property
    def collectives(self) -> list[list[Collective]]:
        """The calls of process groups, by rank."""
        return [collectives(history.record) for history in self._histories]

    @property
    def missing(self) -> list[int]:
        """Ranks of the run that are not among these."""
        world = self._histories[0].record.run.world_size or 0
        here = {history.record.run.rank for history in self._histories}
        return [rank for rank in range(world) if rank not in here]

    def __repr__(self) -> str:
        run = self._histories[0].record.run
        lines = [f"{run.model} on {counted_text(run.world_size or len(self), 'rank')}"]
        if self.missing:
            lines.append(f"not given: {', '.join(f'rank {rank}' for rank in self.missing)}")
        for history, calls in zip(self._histories, self.collectives, strict=True):
            record = history.record
            moved = sum(call.size_bytes for call in calls)
            own = history.record.run.rank
            lines.append(
                f"  rank {own}: {counted_text(len(record.ops), 'operation')}, {seconds_text(record.run.time_ns)}, "
                f"{counted_text(len(calls), 'collective')}, {bytes_text(moved)} given to them"
            )
        place = first_mismatch([history.record for history in self._histories])
        if place is not None:
            lines.append(f"  the ranks' collectives differ from the {place + 1}. on")
        lines += [self._line(row) for row in self.ops[:_SHOWN]]
        if len(self.ops) > _SHOWN:
            lines.append(f"  … {len(self.ops) - _SHOWN} more")
        return "\n".join(lines)

    def _line(self, row: RankedOp) -> str:
        shapes = []
        for history, op in zip(self._histories, row.ops, strict=True):
            record = history.record
            outputs = () if op is None else record.ops[op].outputs
            shapes.append(" ".join(shape_text(record.values[item.value].shape) for item in outputs) or "–")
        shown = shapes[0] if len(set(shapes)) == 1 else " | ".join(shapes)
        return f"  {row.name:<20} {row.module:<30} {shown}"
