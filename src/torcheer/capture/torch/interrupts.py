"""What a capture replaces is put back even where Ctrl-C comes while it is being replaced or put back."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any

from torcheer.record.interrupts import no_interrupts


class Together:
    """Context managers that are entered all or none, and left all."""

    def __init__(self, *managers: AbstractContextManager[Any]) -> None:
        self._managers = managers
        self._entered = ExitStack()

    def __enter__(self) -> Together:
        try:
            with no_interrupts():
                for manager in self._managers:
                    self._entered.enter_context(manager)
        except BaseException:
            self.leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave what is entered. To be called once more after the block: Ctrl-C may come before the first line here."""
        with no_interrupts():
            self._entered.close()
