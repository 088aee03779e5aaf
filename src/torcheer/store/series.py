"""What a run's file holds, as plain data: series, rows of one step, scalars, alerts, notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.uint16]

KINDS = (
    "input", "output", "attached", "input_grad", "output_grad", "attached_grad", "param", "param_grad",
)  # fmt: skip


@dataclass(frozen=True)
class Series:
    """One watched tensor: the same place in the model, step after step."""

    id: int  # number within the file of its process
    lane: str  # rows of which clock: "train", "eval"; "discriminator/train" where a run has several models
    model: str  # name of the model in the run; "" for the only one
    module: str  # address of the module: "layer1.0.conv1"; "" for the model itself
    call: int  # which call of that module in one forward, from 1; 0 for parameters, which calls share
    kind: str  # one of KINDS
    path: str  # place among the module's inputs or outputs: "0", "1.hidden", "mask"; name of a parameter
    shape: tuple[int, ...] = ()  # when first seen
    dtype: str = ""  # when first seen: "float32"
    device: str = ""  # when first seen: "cpu", "cuda:0"

    @property
    def name(self) -> str:
        """``fc1:1/output/0``, ``fc1/param/weight``"""
        where = f"{self.model}/" if self.model else ""
        call = f":{self.call}" if self.call else ""
        return f"{where}{self.module or '(model)'}{call}/{self.kind}/{self.path}"

    @property
    def num_elements(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size

    def facts(self) -> dict[str, Any]:
        """All of it as plain data."""
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}  # asdict takes a second for 20,000
        return {**own, "shape": list(self.shape), "name": self.name}

    @classmethod
    def from_facts(cls, number: int, facts: dict[str, Any]) -> Series:
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        return cls(**{**known, "id": number, "shape": tuple(facts.get("shape", ()))})


@dataclass
class StepRows:
    """What one logged step of one lane adds. Series that are one tensor share a row."""

    lane: str  # "train"
    step: int  # number of the step, from 0
    time: float  # seconds since the epoch
    series: npt.NDArray[np.uint32]  # ids
    rows: npt.NDArray[np.uint32]  # the row of each of these series in the two arrays below
    stats: Floats  # [rows, len(STATISTICS)]
    counts: Counts  # [rows, bins]


class Scalars(NamedTuple):
    """A number over time: loss, learning rate."""

    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    times: npt.NDArray[np.float64]  # seconds since the epoch


class Alert(NamedTuple):
    """A rule found something worth looking at."""

    seq: int  # grows from alert to alert
    step: int
    rule: str  # "nan", "vanishing", "exploding", "dead", "saturated"
    series: int | None  # id of the series it is about
    message: str  # what, where, and what to do


class Note(NamedTuple):
    """Something the reader must know to read the run rightly."""

    seq: int
    step: int
    code: str  # "compiled", "forward-not-seen"
    message: str


@dataclass(frozen=True)
class Change:
    """What is new since a cursor."""

    cursor: str  # hand it to the next ``follow``
    last_step: int | None  # newest logged step of any lane
    steps: dict[str, int] = field(default_factory=dict)  # lane → oldest step that is new or was written again
    series: bool = False  # there are new series
    structure: bool = False  # there is a new structure
    scalars: bool = False
    alerts: bool = False
    notes: bool = False

    @property
    def anything(self) -> bool:
        return bool(self.steps or self.series or self.structure or self.scalars or self.alerts or self.notes)
