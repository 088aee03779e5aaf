"""The callbacks for Lightning and the Hugging Face Trainer, in the real trainers, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from torcheer.store import Run
from torcheer.watching.watch import all_watches

pytestmark = pytest.mark.filterwarnings("ignore")  # of the trainers, about loggers, workers and devices


@pytest.fixture(autouse=True)
def _let_go() -> Any:
    yield
    for one in all_watches():
        one.stop()


def _options(tmp_path: Path) -> dict[str, Any]:
    return {"log_freq": 1, "backend": "store", "dir": tmp_path / "runs", "name": "run", "verbose": False}


def _fit(module: Any, callback: Any, tmp_path: Path, **options: Any) -> Any:
    import lightning.pytorch as pl

    data = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 1)), batch_size=4)
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=[callback], logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, **options,
    )  # fmt: skip
    trainer.fit(module, data, data)
    return trainer


def _module(with_forward: bool) -> Any:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

        def _loss(self, batch: Any) -> Tensor:
            x, y = batch
            return (self(x) if with_forward else self.net(x)).sub(y).square().mean()

        def training_step(self, batch: Any, _: int) -> Tensor:
            loss = self._loss(batch)
            self.log("train/loss", loss)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val/loss", self._loss(batch))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    if with_forward:
        Module.forward = lambda self, x: self.net(x)
    return Module()


@pytest.mark.parametrize("with_forward", [True, False])
def test_lightning(tmp_path: Path, with_forward: bool) -> None:
    from torcheer.integrations.lightning import WatchCallback

    callback = WatchCallback(**_options(tmp_path))
    module = _module(with_forward)
    _fit(module, callback, tmp_path, num_sanity_val_steps=0)
    prefix = "net." if with_forward else ""
    with Run.open(tmp_path / "runs" / "run") as run:
        assert run.rows(run.find(f"{prefix}0/param_grad/weight")).steps.tolist() == list(range(12))
        assert run.rows(run.find(f"{prefix}2:1/output_grad/0")).steps.tolist() == list(range(12))
        assert run.lanes == ["eval", "train"]
        assert {"loss", "lr", "val/loss"} <= set(run.scalar_names)
        assert run.scalars("loss").steps.tolist() == list(range(12))
        assert (run.rows(f"{prefix}0/param/weight")["update"] > 0).all()
        assert not run.notes()
    assert not all_watches(), "ended with the fit"
    assert "__call__" not in type(module).__dict__


def test_lightning_that_fails_ends_the_watch(tmp_path: Path) -> None:
    from torcheer.integrations.lightning import EPOCHS, WatchCallback

    module = _module(True)
    plain = module.forward

    def forward(x: Tensor) -> Tensor:
        if module.global_step == 8:
            raise ValueError("of the user's")
        return plain(x)

    module.forward = forward
    with pytest.raises(ValueError, match="of the user's"):
        _fit(module, WatchCallback(time_log=EPOCHS, **_options(tmp_path)), tmp_path, num_sanity_val_steps=0)
    assert not all_watches()
    with Run.open(tmp_path / "runs" / "run") as run:
        assert len(run.rows("net.0/param_grad/weight")) == 8
        assert run.scalars("epoch").values.tolist() == [0] * 6 + [1] * 3


def test_lightning_with_the_same_result(tmp_path: Path) -> None:
    import lightning.pytorch as pl

    from torcheer.integrations.lightning import WatchCallback

    def weights(callback: Any) -> list[Tensor]:
        torch.manual_seed(0)
        module = _module(True)
        _fit(module, callback, tmp_path)
        return [one.detach().clone() for one in module.parameters()]

    for one, other in zip(weights(WatchCallback(**_options(tmp_path))), weights(pl.Callback()), strict=True):
        assert torch.equal(one, other)


def test_transformers_trainer(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    from torcheer.integrations.transformers import WatchCallback

    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16,
    )  # fmt: skip
    data = [{"input_ids": torch.randint(50, (7,)), "labels": torch.tensor(n % 2)} for n in range(12)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, num_train_epochs=2, report_to=[],
        logging_steps=2, save_strategy="no", use_cpu=True, disable_tqdm=True, eval_strategy="epoch",
        dataloader_pin_memory=False,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    trainer = Trainer(
        model, arguments, train_dataset=data, eval_dataset=data, callbacks=[WatchCallback(**_options(tmp_path))]
    )  # fmt: skip
    trainer.train()
    assert not all_watches()
    with Run.open(tmp_path / "runs" / "run") as run:
        name = "bert.encoder.layer.0.output.dense"
        assert run.rows(run.find(f"{name}/param_grad/weight")).steps.tolist() == list(range(6))
        assert run.rows(run.find(f"{name}:1/output_grad/0")).steps.tolist() == list(range(6))
        assert run.lanes == ["eval", "train"]
        assert {"loss", "learning_rate", "grad_norm", "eval_loss"} <= set(run.scalar_names)
        assert len(run.scalars("loss").steps) == 3
        assert not run.notes()
