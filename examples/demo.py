"""What ``make demo`` shows: a small residual network recorded once, and what the record tells.

python examples/demo.py [--close]

The explorer it opens at the end lives on for ten minutes after the last look; --close ends it at once, and
removes the run that was watched.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import torch
import torch.nn.functional as F
from models import ResidualNet, SimpleRecurrent

import torcheer as tl


def heading(text: str) -> None:
    print(f"\n---- {text} {'-' * max(0, 94 - len(text))}\n")


def record(model: torch.nn.Module, images: torch.Tensor) -> tl.ModelHistory:
    heading("1. Record a run: history = tl.log_forward_pass(model, images)")
    history = tl.log_forward_pass(model, images)
    print(history)
    return history


def look_up(history: tl.ModelHistory) -> None:
    heading('2. Look up a layer: history["conv2d_3"]')
    layer = history["conv2d_3"]
    print(layer)
    heading("3. The same layer by its module, and by its position")
    for key in (layer.module, layer.position, layer.position - len(history)):
        print(f"history[{key!r}] is {history[key].label}")


def read_tensor(history: tl.ModelHistory) -> None:
    heading('4. Its activations: history["conv2d_3"].tensor_contents')
    activations = history["conv2d_3"].tensor_contents
    print(f"a {type(activations).__name__} of shape {tuple(activations.shape)}")
    print(f"mean {activations.mean():.4f}, standard deviation {activations.std():.4f}")


def read_gradient(history: tl.ModelHistory, labels: torch.Tensor) -> None:
    heading("5. A backward pass into the same record: history.log_backward(loss)")
    loss = F.cross_entropy(history.output, labels)
    history.log_backward(loss)
    print(f"loss {loss:.4f}")
    for name in ("conv2d_2", "conv2d_3", "linear_1"):
        layer = history[name]
        shape, norm = tuple(layer.gradient.shape), layer.gradient.norm()
        print(f"{layer.label}: gradient of shape {shape}, norm {norm:.4f}")
    layer = history["conv2d_3"]
    ran = [aten.function for aten in layer.aten if aten.phase == "backward"]
    print(f"{layer.label} ran in the backward pass: {', '.join(ran)}")


def save_and_load(history: tl.ModelHistory) -> None:
    heading('6. Save and load: history.save("run.tch"), tl.load("run.tch")')
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.tch"
        history.save(path)
        for file in sorted(path.iterdir()):
            print(f"{path.name}/{file.name}: {file.stat().st_size:,} bytes")
        loaded = tl.load(path)
        same = all(
            torch.equal(op.tensor_contents, loaded[op.label].tensor_contents) for op in history if op.has_contents
        )
        print(f"loaded: {loaded!r}; every activation equal: {same}")


def keep_some(model: torch.nn.Module, images: torch.Tensor) -> None:
    heading('7. Keep only some activations: layers_to_save=lambda op: op.name == "relu"')
    history = tl.log_forward_pass(model, images, layers_to_save=lambda op: op.name == "relu")
    kept = [op.label for op in history if op.has_contents]
    print(f"{len(kept)} of {len(history)} operations kept: {', '.join(kept)}")
    try:
        history["conv2d_3"].tensor_contents  # noqa: B018 - reading it is the point
    except tl.TorcheerError as error:
        print(f"history['conv2d_3'].tensor_contents: {error}")


def show_loop() -> None:
    heading("8. A loop is one layer with several passes")
    history = tl.log_forward_pass(SimpleRecurrent(), torch.rand(2, 5))
    print(history["linear_1"])


def check(model: torch.nn.Module, images: torch.Tensor) -> None:
    heading("9. Check the record against the model: tl.validate(model, images)")
    print(tl.validate(model, images))


def watch_training(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Path:
    heading("10. Watch it train: tl.watch(model, log_freq=1)")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    folder = mkdtemp(prefix="torcheer-demo-")  # it outlives this process, as the explorer does
    # backend="standalone", the default, follows it live in the browser as well.
    with tl.watch(model, log_freq=1, backend="store", dir=folder, verbose=False) as w:
        for _ in range(30):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    with w.open() as run:
        loss, name = run.scalars("loss").values, next(one.name for one in run.series if one.kind == "param_grad")
        norm = run.rows(name)["norm"]
        print(f"{len(run.series)} tensors over {len(norm)} steps; loss {loss[0]:.4f} to {loss[-1]:.4f}")
        print(f"{name}: gradient norm {norm[0]:.4f} to {norm[-1]:.4f}")
        for alert in run.alerts()[:3]:
            print(f"step {alert.step}: {alert.message}")
    return Path(folder)


def explore(
    model: torch.nn.Module, images: torch.Tensor, history: tl.ModelHistory, diff: tl.Comparison, runs: Path
) -> None:
    heading("14. Look at it all in the browser: tl.explore(history, profile, diff, runs)")
    profile = tl.profile(model, images, repeats=1)
    server = tl.explore(history, profile, diff, runs)
    if "--close" in sys.argv:
        server.close()
        shutil.rmtree(runs)
    else:
        print(f"It reads the training run from {runs}, which stays: remove it when you have seen enough.")


class Rewritten(torch.nn.Module):
    """ResidualNet again: channels last, convolutions as products with patches, and perhaps a mistake."""

    def __init__(self, model: ResidualNet, residual_first: bool) -> None:
        super().__init__()
        self.residual_first = residual_first
        for name, tensor in model.state_dict().items():
            self.register_buffer(name.replace(".", "_"), tensor.clone())

    def convolve(self, x: torch.Tensor, name: str) -> torch.Tensor:
        patches = F.unfold(x.movedim(-1, 1), 3, padding=1).transpose(1, 2)
        weight = getattr(self, f"{name}_weight").flatten(1)
        return (patches @ weight.T).reshape(*x.shape[:3], -1) + getattr(self, f"{name}_bias", 0)

    def normalize(self, x: torch.Tensor, name: str) -> torch.Tensor:
        mean, var, weight, bias = (
            getattr(self, f"{name}_{part}") for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.convolve(images.movedim(1, -1), "stem")
        for block in ("blocks_0", "blocks_1"):
            y = self.normalize(self.convolve(x, f"{block}_conv1"), f"{block}_norm1").clamp(min=0)
            y = self.normalize(self.convolve(y, f"{block}_conv2"), f"{block}_norm2")
            x = (y + x).clamp(min=0) if self.residual_first else y.clamp(min=0) + x
        return x.mean((1, 2)) @ self.head_weight.T + self.head_bias


def compare_with_a_copy(model: ResidualNet, images: torch.Tensor) -> tl.Comparison:
    heading("11. Compare with the same network written again: tl.compare(model, rewritten, images)")
    model.eval()
    print(tl.compare(model, Rewritten(model, residual_first=True).eval(), images))
    heading("12. And with a mistake in it: the residual added after the activation")
    diff = tl.compare(model, Rewritten(model, residual_first=False).eval(), images)
    print(diff)
    return diff


def profile(model: torch.nn.Module, images: torch.Tensor) -> None:
    heading("13. Profile it: print(tl.profile(model, images, backward=True))")
    print(tl.profile(model, images, backward=True).table(depth=2))


def main() -> None:
    torch.manual_seed(0)
    model = ResidualNet()
    images, labels = torch.rand(4, 3, 16, 16), torch.randint(10, (4,))
    history = record(model, images)
    look_up(history)
    read_tensor(history)
    read_gradient(history, labels)
    save_and_load(history)
    keep_some(model, images)
    show_loop()
    check(model, images)
    runs = watch_training(model, images, labels)
    diff = compare_with_a_copy(model, images)
    profile(model, images)
    explore(model, images, history, diff, runs)


if __name__ == "__main__":
    main()
