"""``python -m reproduction``: the command line."""

import sys

from reproduction.cli import main

sys.exit(main())
