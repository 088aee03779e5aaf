"""``Trainer(…, callbacks=[WatchCallback(log_freq=100)])``: a Hugging Face model watched while it is trained."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import torcheer as tl
from torcheer.watching.watch import Watch


class WatchCallback(TrainerCallback):
    """Watches what the Trainer trains. Takes the options of ``tl.watch``."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.watch: Watch | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        del control
        options = dict(self._options)
        if options.get("resume"):
            options.setdefault("start_step", state.global_step * args.gradient_accumulation_steps)
        self.watch = tl.watch(kwargs["model"], **options)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        del args, state, control, kwargs
        if self.watch is not None and logs:
            self.watch.log(**{name: value for name, value in logs.items() if isinstance(value, (int, float))})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        del args, state, control, kwargs
        if self.watch is not None:
            self.watch.stop()
