"""``python -m torcheer``: the same as the command ``torcheer``."""

import sys

from torcheer.cli.main import main

sys.exit(main())
