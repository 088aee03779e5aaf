"""A canary for each private name of PyTorch that torcheer uses: what it must do, and what breaks without it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torcheer.capture.torch import private
from torcheer.capture.torch.overrides import plain_override_checks


def test_sequence_nr_rises_by_one_per_autograd_node() -> None:
    """Without it no backward op and no gradient finds its forward op."""
    x = torch.ones(2, requires_grad=True)
    first = private.sequence_nr()
    y = x * 2
    assert private.sequence_nr() == first + 1
    assert y.grad_fn is not None
    assert y.grad_fn._sequence_nr() == first  # type: ignore[attr-defined]


def test_current_node_is_the_node_being_evaluated() -> None:
    """Without it backward ATen ops have no owner."""
    seen: list[Any] = []

    class Watch(private.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(private.current_node())
            return func(*args, **(kwargs or {}))

    y = (torch.ones(2, requires_grad=True) * 2).sum()
    with Watch():
        y.backward()
    names = {type(node).__name__ for node in seen if node is not None}
    assert "MulBackward0" in names
    assert private.current_node() is None


def test_forward_ad_is_known_while_it_is_on() -> None:
    """Without it the calls on tangents are missing where a function is taken for one ATen call."""
    assert not private.in_forward_ad()
    with torch.autograd.forward_ad.dual_level():
        assert private.in_forward_ad()
    assert not private.in_forward_ad()


def test_storage_id_is_shared_by_views_and_only_by_them() -> None:
    """Without it edges through views and in-place ops are lost."""
    x, y = torch.ones(4), torch.ones(4)
    assert private.storage_id(x) == private.storage_id(x[1:])
    assert private.storage_id(x) != private.storage_id(y)


def test_no_dispatch_mode_hides_calls_from_a_mode() -> None:
    """Without it torcheer's own copies would be recorded."""
    seen: list[str] = []

    class Watch(private.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        with private.no_dispatch_mode():
            torch.ones(2).detach()
        assert seen == []
        torch.ones(2)
    assert seen == ["aten.ones.default"]


def test_no_function_mode_hides_calls_from_a_mode() -> None:
    """The same, one level up."""
    seen: list[Any] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        with private.no_function_mode():
            torch.ones(2).sin()
        assert seen == []
        torch.ones(2)
    assert len(seen) == 1


def test_override_checks_ignore_modes_and_honour_subclasses() -> None:
    """Without them TransformerEncoderLayer leaves its fast path under a capture and changes its output."""

    class Sub(torch.Tensor):
        pass

    class Passes(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    plain, special = torch.ones(1), torch.ones(1).as_subclass(Sub)
    originals = (nn.functional.has_torch_function_unary, torch.overrides.has_torch_function)
    with Passes(), plain_override_checks(lambda: True):
        assert not nn.functional.has_torch_function_unary(plain)
        assert not torch.overrides.has_torch_function((plain,))
        assert nn.functional.has_torch_function_variadic(plain, special)
    assert originals == (nn.functional.has_torch_function_unary, torch.overrides.has_torch_function)


def test_framework_frames_are_those_of_a_module_call() -> None:
    """Without them call sites reach beyond the module they are in."""
    codes = set()

    class Look(nn.Module):
        def forward(self) -> None:
            import sys

            frame = sys._getframe(1)
            while frame is not None:
                codes.add(frame.f_code)
                frame = frame.f_back  # type: ignore[assignment]

    Look()()
    assert set(private.FRAMEWORK_CODES) <= codes


def test_backward_runner_sees_backward_and_grad() -> None:
    """Without it a user's own loss.backward() is not seen."""
    started: list[int] = []

    def wrap(original: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            started.append(1)
            return original(*args, **kwargs)

        return run

    x = torch.ones(2, requires_grad=True)
    with private.backward_runner(wrap):
        x.sum().backward()
        torch.autograd.grad((x * 2).sum(), x)
    assert len(started) == 2
    x.sum().backward()
    assert len(started) == 2


def test_custom_operators_are_known_and_their_kernel_can_be_run() -> None:
    """Without it the inside of a custom operator is hidden."""

    @torch.library.custom_op("torcheer_private::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    operator = torch.ops.torcheer_private.twice.default
    assert private.is_custom_operator(operator)
    assert not private.is_custom_operator(torch.ops.aten.add.Tensor)
    assert torch.equal(private.run_kernel(operator, torch.ones(2), (torch.ones(2),), {}), torch.full((2,), 2.0))
    assert "torcheer_private::twice" in private.all_operator_names()


def test_composite_operators_are_told_apart() -> None:
    aten = torch.ops.aten
    assert all(map(private.is_composite, (aten.reshape.default, aten.to.dtype, aten.contiguous.default)))
    assert not any(map(private.is_composite, (aten.view.default, aten.t.default, aten.relu.default)))


def test_higher_order_operators_have_a_plain_kernel() -> None:
    """Without it torch.cond and while_loop fail under a capture."""
    kernel = private.plain_kernel(torch.ops.higher_order.cond)
    x = torch.ones(2)
    with torch.no_grad():
        assert torch.equal(kernel(torch.tensor(True), lambda a: a + 1, lambda a: a - 1, (x,)), x + 1)


def test_functional_wrappers_are_told_apart() -> None:
    """Without it contents of tensors inside vmap would be kept, which end with the transform."""
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(private.is_functional_wrapper(x))
        return x

    torch.vmap(look)(torch.ones(2, 2))
    assert seen == [True]
    assert not private.is_functional_wrapper(torch.ones(1))


def test_dynamo_can_be_kept_out_of_a_function() -> None:
    """Without it Dynamo compiles the capture's own code when it meets it."""

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    private.hide_from_dynamo(plain)
    assert torch.equal(plain(torch.ones(1)), torch.full((1,), 2.0))


def test_c_namespaces_hold_the_builtins_of_public_modules() -> None:
    """Without them builtins are shown under names nobody can import."""
    assert private.C_NAMESPACES["torch.nn.functional"].gelu is nn.functional.gelu


def test_a_storage_knows_the_address_that_its_tensors_tell() -> None:
    """Without it contents kept of a freed storage (FSDP) would be read as if they were still there."""
    x = torch.ones(4)
    assert private.id_of_storage(x.untyped_storage()) == private.storage_id(x[2:])


def test_higher_order_operators_can_run_their_functions_under_autograd() -> None:
    """Without it what a branch of cond or a body of while_loop closes over loses its gradient."""
    assert private.is_autograd_key(torch._C.DispatchKey.AutogradCPU)
    assert not private.is_autograd_key(torch._C.DispatchKey.CPU)
    assert "dispatch" in vars(torch._ops.OperatorBase) or hasattr(private.HigherOrderOperator, "dispatch")
    run = private.eager_branches(torch.ops.higher_order.cond)
    assert run is not None
    weight = torch.ones(2, requires_grad=True)

    class Passes(private.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Passes():
        out = run(torch.tensor(True), lambda x: x * weight, lambda x: x, (torch.ones(2),))
    assert out.requires_grad


def test_packed_tensors_are_what_a_node_holds() -> None:
    """Without it nothing is known to be held for the backward pass."""
    x, w = torch.ones(4, requires_grad=True), torch.ones(4)
    node = (x * w).grad_fn
    assert [tensor.data_ptr() for tensor in private.packed_tensors(node)] == [w.data_ptr()]


def test_packed_tensors_does_not_run_the_users_hooks() -> None:
    """Without this, looking at a checkpoint would compute it again."""
    x = torch.ones(4, requires_grad=True)

    def refuse(_packed: object) -> torch.Tensor:
        raise AssertionError("it was unpacked")

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor,), refuse):
        y = x * torch.ones(4)
    assert list(private.packed_tensors(y.grad_fn)) == []
