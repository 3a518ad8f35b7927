"""The best of several draws, given a sample without replacement, which all methods take as ``Draws``."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

Terms = Mapping[int, float]  # numbers of draws, and the share of the best of each in a sum


class Draws(NamedTuple):
    """A sample without replacement in ascending order of f, with edge cases replaced.

    An impossible outcome has probability 0 under the target, so no draw has it, and an overwhelming
    mass under the distribution sampled from, so it does not affect the other outcomes.
    """

    log_p: Tensor  # (*batch, k), of the target; −inf where the outcome is impossible
    log_q: Tensor  # (*batch, k), of the distribution sampled from, finite
    log_rest: Tensor  # (*batch,), finite
    covered: Tensor  # (*batch,), where nothing is left outside the sample
    room: Tensor  # (*batch,), how many draws the sample has room for; the baseline needs one more
