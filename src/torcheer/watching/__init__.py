"""Watching a model while it trains: samples of its tensors at logged steps, handed to the store.

What must hold here: training is not changed by a bit (no random number is drawn, no tensor of the user's is written,
no module carries a hook), a step that is not logged costs next to nothing, and a logged step costs the same at
the end of the run as at its beginning. `docs/design/watching.md` says how.
"""

import torcheer.capture.torch  # noqa: F401 - says what to install where there is no torch
