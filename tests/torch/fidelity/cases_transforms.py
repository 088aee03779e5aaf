"""torch.func transforms, higher-order operators, custom operators and autograd functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

from tests.torch.fidelity.case import Case, model_of
from torcheer.history import ModelHistory

# The first forward-mode derivative in a process scripts torch's own decompositions.
_JVP = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.script` is deprecated:DeprecationWarning")

# Dynamo asks tensors that are no leaves for their gradient.
_GRAD = pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor that is not a leaf Tensor:UserWarning")

# The first scan in a process scripts modules of torch's own.
_SCRIPTS = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.script_method` is deprecated:DeprecationWarning")


class Vmap(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return vmap(lambda row: torch.tanh(self.inner(row)).sum())(x) * 2


class Grad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return grad(lambda point: torch.tanh(self.inner(point)).sum())(x) + x


class PerSample(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        params = dict(self.inner.named_parameters())

        def loss(given: dict[str, Tensor], row: Tensor) -> Tensor:
            return functional_call(self.inner, given, (row,)).sin().sum()

        return vmap(grad(loss), in_dims=(None, 0))(params, x)["weight"]


class Forward(nn.Module):
    def __init__(self, transform: Any) -> None:
        super().__init__()
        self.transform = transform

    def forward(self, x: Tensor) -> Any:
        return self.transform(lambda point: torch.sin(point) * point)(x)


class Jvp(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return jvp(torch.cos, (x,), (torch.ones_like(x),))


class VmapRandom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return vmap(lambda row: row + torch.rand_like(row), randomness="different")(x)


class InnerGrad(nn.Module):
    """A model whose forward runs autograd: a force field, a gradient penalty."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            energy = self.energy(point).sum()
            (force,) = torch.autograd.grad(energy, point, create_graph=True)
        return energy + force.pow(2).sum()


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: self.inner(y).sin(), lambda y: y.cos(), (x,)) + 1


class Chooses(nn.Module):
    """A module that branches, with a branch of its own in the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        def outer(y: Tensor) -> Tensor:
            return torch.cond(y.sum() > 1e9, lambda z: z.sin(), lambda z: self.inner(z) * 2, (y,))

        return torch.cond(x.sum() < 1e9, outer, lambda y: y.cos(), (x,))


class CondInParts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Chooses()
        self.second = Chooses()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).cos())


class WhileLoop(nn.Module):
    def forward(self, x: Tensor) -> Any:
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda count, y: count < 3, lambda count, y: (count + 1, y.sin() * 2), (torch.zeros(()), x))


class Loops(nn.Module):
    """while_loop, map and scan over a param that their functions close over: it gets its gradient."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.kind = kind

    def forward(self, x: Tensor) -> Any:
        from torch._higher_order_ops.map import map as map_rows
        from torch._higher_order_ops.scan import scan
        from torch._higher_order_ops.while_loop import while_loop

        if self.kind == "map":
            return map_rows(lambda row: (row * self.weight).sin(), x).sum()
        if self.kind == "scan":
            return scan(lambda total, row: (total + row * self.weight, total * 2), torch.zeros(3), x)[1].sum()
        start = (torch.zeros(()), x)
        return while_loop(lambda count, y: count < 3, lambda count, y: (count + 1, y * self.weight), start)[1].sum()


@torch.library.custom_op("torcheer_fidelity::scaled_sine", mutates_args=())
def scaled_sine(x: Tensor, scale: float) -> Tensor:
    return torch.sin(x) * scale


@scaled_sine.register_fake
def _(x: Tensor, scale: float) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _sine_backward(ctx: Any, gradient: Tensor) -> Any:
    (x,) = ctx.saved_tensors
    return gradient * x.cos() * ctx.scale, None


scaled_sine.register_autograd(_sine_backward, setup_context=_keep)


@torch.library.custom_op("torcheer_fidelity::double_in_place", mutates_args=("x",))
def double_in_place(x: Tensor) -> None:
    x.mul_(2)


class CustomOp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = scaled_sine(x + 1, 3.0)
        return torch.ops.torcheer_fidelity.scaled_sine(y, 2.0) - 1


class MutatingCustomOp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        double_in_place(y)
        return y - 1


class OldStyle(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return torch.exp(x) * scale

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * torch.exp(x) * ctx.scale, None


class NewStyle(Function):
    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sin(x) + 1, torch.cos(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return first * x.cos() - second * x.sin()


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


class Functions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = OldStyle.apply(self.inner(x), 2.0)
        second, third = NewStyle.apply(first)
        return Dirty.apply(second + third).sum()


def check_inside(name: str, *inside: str) -> Any:
    """The named op is there once or more, and what it does inside is recorded under it."""

    def check(history: ModelHistory) -> None:
        found = [op for op in history if op.name == name]
        assert found, [op.name for op in history]
        for op in found:
            functions = [call.function.split(".")[1] for call in op.aten]
            functions += [call.function.split(".")[1] for inner in op.inner for call in inner.aten]
            assert set(inside) <= set(functions), f"{op.label} holds {functions}"

    return check


def check_functions(history: ModelHistory) -> None:
    check_inside("oldstyle", "exp", "mul")(history)
    check_inside("newstyle", "sin", "cos")(history)
    check_inside("dirty", "mul_")(history)
    old, new, dirty = (next(op for op in history if op.name == name) for name in ("oldstyle", "newstyle", "dirty"))
    assert [op.name for op in old.inner] == ["exp", "mul"]
    assert [op.name for op in old.parents] == ["linear"]
    assert old.parents[0].module == "inner"
    assert new.parents == (old,)
    assert len(new.outputs) == 2
    assert [op.name for op in dirty.parents] == ["add"]
    assert dirty.children[0].name == "sum"
    assert all(op.owner is None for op in history)


def check_mutating(history: ModelHistory) -> None:
    custom = next(op for op in history if op.name == "doubleinplace")
    subtract = next(op for op in history if op.name == "sub")
    assert [op.name for op in custom.parents] == ["add"]
    assert custom in subtract.parents


def check_chain(*names: str) -> Any:
    """Operations of these names are there, in this order, and each reaches the output."""

    def check(history: ModelHistory) -> None:
        found = [op.name for op in history]
        places = iter(found)
        assert all(name in places for name in names), found
        (output, *_) = history.outputs
        reached = {output}
        todo = [output]
        while todo:
            fresh = set(todo.pop().parents) - reached
            reached |= fresh
            todo += fresh
        assert set(names) <= {op.name for op in reached}

    return check


def check_vmap(history: ModelHistory) -> None:
    check_chain("linear", "tanh", "sum", "mul")(history)
    linear = next(op for op in history if op.name == "linear")
    assert linear.module == "inner"
    assert {param.address for param in linear.params} == {"inner.weight", "inner.bias"}


def case(name: str, model: Any, *shape: int, **options: Any) -> Case:
    return Case(name, model_of(lambda: (model(), torch.randn(*shape))), **options)


CASES = [
    case("vmap", Vmap, 4, 3, names=("linear", "tanh", "sum"), keeps_all=False, min_ops=4, check=check_vmap),
    case("vmap_random", VmapRandom, 4, 3, names=("randlike", "add"), keeps_all=False, min_ops=2),
    case(
        "grad", Grad, 3, names=("linear", "tanh"), keeps_all=False, min_ops=4,
        check=check_chain("linear", "tanh", "add"),
    ),
    case("per_sample_grad", PerSample, 4, 3, names=("linear", "sin"), keeps_all=False, min_ops=3),
    case("jacfwd", lambda: Forward(jacfwd), 3, names=("sin", "mul"), keeps_all=False, min_ops=2, marks=(_JVP,)),
    case("jacrev", lambda: Forward(jacrev), 3, names=("sin", "mul"), keeps_all=False, min_ops=2),
    case("hessian", lambda: Forward(hessian), 2, names=("sin", "mul"), keeps_all=False, min_ops=2, marks=(_JVP,)),
    case("jvp", Jvp, 3, names=("cos",), keeps_all=False, min_ops=1, marks=(_JVP,)),
    case("autograd_grad_inside", InnerGrad, 2, 3, names=("linear", "tanh", "pow"), min_ops=6),
    case("cond", Cond, 3, min_ops=3, aten=("aten.add",), census=False),
    *(
        case(
            f"{kind}_params", partial(Loops, kind), 2, 3, names=("mul",), min_ops=3, census=False, same_nodes=False,
            marks=(_SCRIPTS,),
            # PyTorch 2.13 counts one turn only in the gradient of what the body of a while_loop closes over.
            backward=kind != "while_loop",
        )
        for kind in ("while_loop", "map", "scan")
    ),
    case("while_loop", WhileLoop, 3, min_ops=3, aten=("aten.sin", "aten.mul"), census=False),
    case(
        "cond_in_parts", CondInParts, 3, names=("linear", "cos"), min_ops=5, census=False, same_nodes=False,
        marks=(_GRAD,),
    ),
    Case(
        "custom_op_meta", model_of(lambda: (CustomOp(), torch.ones(2, 3, device="meta"))), names=("scaledsine",),
        min_ops=4, census=False, keeps_all=False,
    ),
    case(
        "custom_op", CustomOp, 2, 3, names=("scaledsine", "add", "sub"), min_ops=4,
        check=check_inside("scaledsine", "sin", "mul"), census=False,
    ),
    case(
        "custom_op_mutating", MutatingCustomOp, 2, 3, names=("doubleinplace",), min_ops=3, check=check_mutating,
        census=False,
    ),
    case(
        "autograd_function", Functions, 2, 3, names=("oldstyle", "newstyle", "dirty"), min_ops=6,
        check=check_functions,
    ),
]  # fmt: skip
