"""Checks every op for NaN and Inf and keeps no record: cheap enough for training.

One sum per op says whether its result is finite. Only when one is not, it is worked out where that was: the module
from the calls that are open, the source line from the stack, the owner of a backward op from sequence numbers. What
was born is kept as a small record of those ops alone.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from math import isfinite, isinf
from typing import Any, NamedTuple

import torch

from torcheer.capture.torch.finite import facts_of, inputs_of, is_finite, total_of
from torcheer.capture.torch.inspection import watching_calls
from torcheer.capture.torch.kinds import AtenKind, describe
from torcheer.capture.torch.private import (
    TorchDispatchMode,
    backward_runner,
    current_node,
    hide_from_dynamo,
    no_dispatch_mode,
    no_function_mode,
    sequence_nr,
    storage_id,
)
from torcheer.capture.torch.structure import describe_structure, snapshot
from torcheer.capture.torch.tape import Tape, named_tensors
from torcheer.errors import NonFiniteError
from torcheer.record.model import Frame, ModuleCall, NonFinite, Op, Record, Run, Site, TensorFacts

Tensor = torch.Tensor
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_MASKS = ("full", "fill", "scalar_tensor", "masked_fill", "where", "new_full", "constant_pad")
_NO_CONTENTS = ("aten.empty", "aten.new_empty", "aten._empty", "aten.resize", "aten._efficientzerotensor")
MAX_BIRTHS = 100  # of one run: a net that has gone NaN gives birth to no more


class Birth(NamedTuple):
    """NaN or Inf came to be in an op."""

    function: str
    args: tuple[Any, ...]  # its numbers, for telling masks
    phase: str
    module: int | None  # id() of the innermost module
    node: str | None
    frame: Frame | None
    facts: TensorFacts
    inputs: tuple[TensorFacts, ...]


class GuardLevel(TorchDispatchMode):
    """Looks at what every ATen call returns."""

    supports_higher_order_operators = True

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard
        # id() of an operator → it, its kind, whether what it returns is not looked at, what runs it
        self.kinds: dict[int, tuple[Any, AtenKind, bool, Callable[..., Any]]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # hide_from_dynamo does it at no cost

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        known = self.kinds.get(id(func)) or self._kind(func)
        run = known[3]
        out = run(*args, **kwargs) if kwargs else run(*args)
        if known[2]:
            return out
        if type(out) is Tensor:
            # As total_of has it: of most tensors, and a call less.
            if out.dtype is torch.float32 and out.layout is torch.strided and not out.is_meta:
                total = out.sum().item()
            else:
                total = total_of(out)
            if not isfinite(total):
                self.guard.look(known[1], args, kwargs or {}, out, total)
            return out
        for _, tensor in named_tensors(out):
            total = total_of(tensor)
            if not isfinite(total):
                self.guard.look(known[1], args, kwargs or {}, tensor, total)
        return out

    def _kind(self, func: Any) -> tuple[Any, AtenKind, bool, Callable[..., Any]]:
        kind = describe(func)
        # A view holds what was looked at when it was made.
        is_view = kind.is_view and not kind.writes and kind.name.startswith("aten.")
        skipped = is_view or kind.is_mark or kind.name.startswith(_NO_CONTENTS)
        # OpOverload.__call__ is a Python function that calls _op, once for every op of a step.
        run = getattr(func, "_op", func) if kind.name.startswith("aten.") else func
        known = self.kinds[id(func)] = (func, kind, skipped, run)
        return known


class Guard:
    """Checks the ops between ``start`` and ``finish``, of the watched models and of everything around them."""

    def __init__(self, models: list[torch.nn.Module], choice: str) -> None:
        self.models = models
        self.choice = choice  # "report" | "warn" | "stop"
        self.runs: list[Birth | None] = []  # not empty once a model was called
        self.births: list[Birth] = []
        self.alarms: list[Birth] = []  # those that do harm
        self.reached: dict[int, str] = {}  # index of an Inf's birth → what it came to: "output" | "gradient"
        self._bad: set[int] = set()  # addresses of storages that hold NaN or Inf
        self._spans: list[tuple[int, int, int]] = []  # (first, last sequence number, id of the module)
        self._open: list[int] = []  # ids of modules whose calls are open
        self._undo = ExitStack()
        self._is_backward = False

    def start(self) -> None:
        """Begin to check."""
        modules = [module for model in self.models for module in model.modules()]
        self._undo.enter_context(watching_calls(modules, self._call))
        self._undo.enter_context(backward_runner(self._backward))
        self._undo.enter_context(GuardLevel(self))

    def finish(self) -> None:
        """Take everything back."""
        self._undo.close()

    def models_of_runs(self) -> list[torch.nn.Module]:
        """The model of the one record there is."""
        return self.models[:1] if self.runs else []

    # -- while it runs -------------------------------------------------------------------------------

    def _call(
        self, module: torch.nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        is_outermost = not self._open
        if is_outermost and not self._is_backward:
            self.runs = [None]
            self._spans.clear()
        self._open.append(id(module))
        first = sequence_nr()
        try:
            out = call(module, *args, **kwargs)
        finally:
            self._open.pop()
            self._spans.append((first, sequence_nr(), id(module)))
        if is_outermost and self._bad:
            self._check("output", [tensor for _, tensor in named_tensors(out)])
        return out

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
            if self._bad:
                self._check("output", [root for root in roots if isinstance(root, Tensor)])
            outer, self._is_backward = self._is_backward, True
            try:
                return original(roots, *args, **kwargs)
            finally:
                self._is_backward = outer

        return run

    def _check(self, what: str, tensors: list[Tensor]) -> None:
        """An Inf that reaches the output or the loss does harm; a NaN does wherever it is."""
        with no_dispatch_mode(), no_function_mode(), torch.no_grad():
            if any(not is_finite(tensor.detach()) for tensor in tensors):
                for index in self._suspects()[:1]:
                    self._harmed(index, what)

    def _suspects(self) -> list[int]:
        """Births of Inf that was not asked for."""
        return [
            index for index, birth in enumerate(self.births)
            if not is_mask(birth) and not birth.facts.nan and birth.phase != "backward"
        ]  # fmt: skip

    def _harmed(self, index: int, what: str) -> None:
        if index not in self.reached:
            self.reached[index] = what
            self._alarm(self.births[index])

    def look(self, kind: AtenKind, args: tuple[Any, ...], kwargs: dict[str, Any], tensor: Tensor, total: float) -> None:
        """An op returned something that is not finite. Was it given that, or was it born here?"""
        with no_function_mode():
            if isinf(total) and self._hands_on(args, kwargs):
                # A mask on its way through the model: told without counting, which takes 50 times longer.
                self._mark(tensor)
                return
            facts = facts_of("output", tensor)
            if not (facts.nan or facts.pos_inf or facts.neg_inf):
                return  # finite numbers, whose sum overflows
            inputs = inputs_of(kind, args, kwargs)
            was_known = self._mark(tensor)
        if kind.writes and was_known:
            return
        nan_in = any(one.nan for one in inputs)
        inf_in = any(one.pos_inf or one.neg_inf for one in inputs)
        was_given = nan_in if facts.nan else nan_in or inf_in
        if was_given and self._is_known(args, kwargs):
            return
        birth = self._born(kind, args, facts, inputs)
        if len(self.births) < MAX_BIRTHS:
            self.births.append(birth)
        if birth.phase == "backward":
            # The backward of what made an Inf: where(x > 0, log(x), 0) at x = 0.
            for index in self._suspects():
                if self.births[index].module == birth.module:
                    self._harmed(index, "gradient")
            if len(self.births) < MAX_BIRTHS and not facts.nan:
                self.reached[len(self.births) - 1] = "gradient"
            self._alarm(birth)
        elif facts.nan:
            self._alarm(birth)

    def _mark(self, tensor: Tensor) -> bool:
        """Note the memory; was it noted before?"""
        try:
            address = storage_id(tensor)
        except (RuntimeError, NotImplementedError):
            return False  # sparse: it has no storage to see
        was_known = address in self._bad
        self._bad.add(address)
        return was_known

    def _is_known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Did any of the tensors given hold NaN or Inf that was seen before? Otherwise it came in from outside."""
        for _, tensor in named_tensors((args, kwargs)):
            try:
                if storage_id(tensor) in self._bad:
                    return True
            except (RuntimeError, NotImplementedError):
                continue  # as above
        return False

    def _hands_on(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Was it given an infinity that was seen before? What it returned holds no NaN, or its sum would be NaN."""
        for _, tensor in named_tensors((args, kwargs)):
            try:
                if storage_id(tensor) in self._bad and not is_finite(tensor):
                    return True
            except (RuntimeError, NotImplementedError):
                continue  # sparse: it has no storage to see
        return False

    def _born(
        self, kind: AtenKind, args: tuple[Any, ...], facts: TensorFacts, inputs: tuple[TensorFacts, ...]
    ) -> Birth:
        numbers = tuple(one for one in args if isinstance(one, (bool, int, float)))
        node = current_node()
        if node is None:
            phase = "recompute" if self._is_backward else "forward"
            return Birth(
                kind.name, numbers, phase, self._open[-1] if self._open else None, None, _frame(), facts, inputs
            )
        module = self._owner(node._sequence_nr())
        return Birth(kind.name, numbers, "backward", module, type(node).__name__, None, facts, inputs)

    def _owner(self, seq: int) -> int | None:
        """The innermost module call during which a node was made."""
        inside = [span for span in self._spans if span[0] <= seq < span[1]]
        return min(inside, key=lambda span: span[1] - span[0])[2] if inside else None

    def _alarm(self, birth: Birth) -> None:
        if len(self.alarms) < MAX_BIRTHS:
            self.alarms.append(birth)
        if self.choice == "report":
            return
        if self.choice == "stop":
            raise NonFiniteError(self.text_of(birth))
        warnings.warn(self.text_of(birth), RuntimeWarning, stacklevel=2)

    def text_of(self, birth: Birth) -> str:
        """What happened, where, and what to look at."""
        counts = ((birth.facts.nan, "NaN"), (birth.facts.pos_inf, "+Inf"), (birth.facts.neg_inf, "-Inf"))
        what = ", ".join(f"{count} {name}" for count, name in counts if count)
        address = self._addresses().get(birth.module or 0, "")
        where = f"module {address!r}" if address else "the model itself or around it"
        line = f" at {birth.frame.file}:{birth.frame.line}" if birth.frame is not None else ""
        node = f" in {birth.node}" if birth.node else ""
        given = "; ".join(
            f"{one.place}: {one.num_elements} numbers "
            + ("none of them finite" if one.smallest is None else f"from {one.smallest:.6g} to {one.largest:.6g}")
            for one in birth.inputs
        )
        return (
            f"{what} of {birth.facts.num_elements} numbers came from {birth.function}{node} ({birth.phase}) in {where}"
            f"{line}. It was given {given or 'no tensors'}. Look at what those numbers do there: a division by zero, "
            "the logarithm or root of zero, an exponential that overflows."
        )

    def _addresses(self) -> dict[int, str]:
        return {id(module): name for model in self.models for name, module in model.named_modules()}

    # -- after it ------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """A record of the ops in which NaN or Inf was born, and of nothing else; none if no model was called."""
        if not self.runs:
            return []
        run = Run(
            type(self.models[0]).__name__, framework_version=str(torch.__version__), measured=("nan",),
            num_backward=int(any(birth.phase == "backward" for birth in self.births)),
        )  # fmt: skip
        record = Record(run)
        structure = snapshot(self.models[0])
        record.modules, record.params, _ = describe_structure(structure, Tape())
        record.calls = [ModuleCall(0, 0, 1, None, 0, None)]
        calls: dict[int | None, int] = {None: 0, id(self.models[0]): 0}
        for place, birth in enumerate(self.births):
            call = calls.get(birth.module)
            if call is None:
                index = structure.positions.get(birth.module or 0, 0)
                call = calls[birth.module] = len(record.calls)
                record.calls.append(ModuleCall(call, index, 1, 0, 1, None))
            self._add(record, birth, call, self.reached.get(place, ""))
        return [record]

    def _add(self, record: Record, birth: Birth, call: int, reaches: str) -> None:
        site = None
        if birth.frame is not None:
            site = len(record.sites)
            record.sites.append(Site((birth.frame,)))
        name = birth.function.split(".")[1].replace("_", "") if "." in birth.function else birth.function
        index = len(record.ops)
        record.ops.append(Op(index, "op", name, birth.function, call, site, aten=(index,)))
        record.aten.append(
            Op(
                index, "op", name, birth.function, call, site, args=birth.args, owner=index, phase=birth.phase,
                node=birth.node,
            )
        )  # fmt: skip
        record.nonfinite.append(NonFinite(index, 0, birth.facts, birth.inputs, reaches))


def is_mask(birth: Birth) -> bool:
    """Was it told to write an infinity?"""
    if birth.facts.nan or birth.phase == "backward":
        return False
    name = birth.function.split(".")[1].strip("_") if "." in birth.function else ""
    return name.startswith(_MASKS) and any(number in (float("inf"), float("-inf")) for number in birth.args)


def _frame() -> Frame | None:
    """The innermost line of the user's on the stack."""
    frame = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((_TORCH, _OWN)):
            return Frame(code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name))
        frame = frame.f_back
    return None


hide_from_dynamo(
    *(value for owner in (GuardLevel, Guard) for value in vars(owner).values() if inspect.isfunction(value))
)
