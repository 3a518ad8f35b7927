"""What pytest leaves out: the doctests of an integration whose package is not installed."""

from __future__ import annotations

from importlib.util import find_spec

# rl4co has an environment of its own, so that `make test` stays quick.
HAS_RL4CO = find_spec("rl4co") is not None
collect_ignore = [] if HAS_RL4CO else ["swor/integrations/rl4co"]


def pytest_report_header() -> str | None:
    return None if HAS_RL4CO else "rl4co is not installed: `make test-rl4co` runs its tests"
