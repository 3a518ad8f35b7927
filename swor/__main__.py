"""``python -m swor`` is ``swor``."""

import sys

from swor.cli import main

sys.exit(main())
