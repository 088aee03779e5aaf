"""A profile: time, memory, FLOPs and the birth of NaN, per module and per op, read from the record."""

from torcheer.profiling.build import build
from torcheer.profiling.flops import Call, Flops, register_formula
from torcheer.profiling.nonfinite import Finding
from torcheer.profiling.report import CallMemory, CallRow, Figures, OpRow, Report, Row, RowMemory, Totals, Uncounted

__all__ = [
    "Call",
    "CallMemory",
    "CallRow",
    "Figures",
    "Finding",
    "Flops",
    "OpRow",
    "Report",
    "Row",
    "RowMemory",
    "Totals",
    "Uncounted",
    "build",
    "register_formula",
]
