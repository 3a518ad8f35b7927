"""Settings of the trainer: those of TRL, and the objective."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Self

from trl import RLOOConfig

from swor._checks import check_count
from swor.integrations.trl._compatibility import refuse_unknown
from swor.integrations.trl._rewards import Goal
from swor.rules.advantages import OBJECTIVES

WHAT = {"best_of": "the best of m", "log_success": "a series of order m"}


@dataclass
class UnorderedSetConfig(RLOOConfig):  # type: ignore[misc]  # trl is not checked
    r"""TRL's ``RLOOConfig`` with other objectives than the mean reward.

    $$J = E[\max(r(x_1), \dots, r(x_m))] - \beta \, \text{KL}(p \, \| \, p_\text{ref})$$

    With ``best_of=m``, the $m$ completions of a prompt in this objective are independent: they are the
    attempts that will be made with the trained model. The objective is estimated from ``num_generations``
    distinct completions, by :func:`swor.best_of`. Choose ``num_generations`` above $m$, which lowers the
    variance.

    $$J = \sum_{m=1}^{T} \frac{\text{pass@}m - 1}{m} - \beta \, \text{KL}(p \, \| \, p_\text{ref})$$

    With ``log_success=T``, the objective is the log of the probability that a completion succeeds, up to the
    order $T$, by :func:`swor.log_success`. Rewards must be 0 or 1, and prompts that are hardly ever solved
    count as much as easy ones.

    The KL penalty stays outside of both. For the mean reward, TRL subtracts
    $\beta \log(p / p_\text{ref})$ from every reward, and the result is the same. Inside of a maximum it would
    favour completions that have become less likely than under the reference, and would be no divergence.

    All other settings are those of ``RLOOConfig``.

    Attributes:
        best_of: $m$, the number of completions of which the best one counts, from 1 to ``num_generations``
            and to ``num_generations_eval``. None means the mean reward, and so does 1. It excludes
            ``normalize_advantages``, which scales by the spread of the advantages of the mean reward.
        log_success: $T$, the order of the series, likewise. It excludes ``best_of`` too.
        allow_fewer: whether a prompt may have fewer than ``num_generations`` completions, for instance with
            ``top_k`` or a short ``max_completion_length``. All of them are then drawn. Reward functions
            get the first completion of such a prompt several times, and its repetitions have weight 0.
    """

    best_of: int | None = field(
        default=None,
        metadata={
            "help": "Train for the expected best reward of this many independent completions, from 1 to "
            "num_generations; the mean reward by default."
        },
    )

    log_success: int | None = field(
        default=None,
        metadata={
            "help": "Train for the log of the probability of success, by its series up to this order, from 1 "
            "to num_generations; rewards must be 0 or 1."
        },
    )
    allow_fewer: bool = field(
        default=False,
        metadata={"help": "Allow prompts that have fewer than num_generations completions."},
    )

    def __new__(cls, *_: object, **given: object) -> Self:
        """Refuse settings that RLOO does not have, and say so."""
        refuse_unknown(cls, given, [field.name for field in fields(cls)])
        new: Self = super().__new__(cls)
        return new

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.best_of is not None and self.log_success is not None:
            raise ValueError(
                f"best_of is {self.best_of} and log_success {self.log_success}; expected one of them "
                "at most. Leave one of them out."
            )
        for name in ("best_of", "log_success"):
            if getattr(self, name) is not None:
                self._check_objective(name, getattr(self, name))

    def _check_objective(self, name: str, m: int) -> None:
        check_count(name, m)
        for size in ("num_generations", "num_generations_eval"):
            k = getattr(self, size)
            if k is not None and k < m:
                raise ValueError(
                    f"{name} is {m} and {size} {k}; expected at most {k}, since {WHAT[name]} is estimated "
                    f"from m completions or more. Raise {size}, or lower {name}."
                )
        if self.normalize_advantages:
            raise ValueError(
                f"{name} is {m} and normalize_advantages True; expected False, since TRL scales by the "
                "spread of the advantages of the mean reward. Leave one of them out."
            )


def goal_of(args: RLOOConfig) -> Goal:
    """Return what is trained for; an ``RLOOConfig`` has only the mean reward."""
    clip = args.reward_clip_range
    for name in OBJECTIVES:
        m = getattr(args, name, None)
        if m is not None:
            return Goal(name, m, clip)
    return Goal(clip_range=clip)
