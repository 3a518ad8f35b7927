"""A pytest plugin: trainers compute in single precision, since bfloat16 is slow on most CPUs."""

import trl


def pytest_configure() -> None:
    """Change the default of TRL's settings; importing this module alone changes nothing."""
    make = trl.RLOOConfig.__init__

    def in_single_precision(self, *args, **given):
        make(self, *args, **{"bf16": False} | given)

    trl.RLOOConfig.__init__ = in_single_precision
