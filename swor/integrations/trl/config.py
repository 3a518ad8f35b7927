"""Settings of the trainer: those of TRL, of which it refuses some, and the objective."""

from __future__ import annotations

from dataclasses import dataclass, field

from trl import RLOOConfig

from swor._checks import check_count

# Settings of TRL with which completions would be drawn from another distribution, or in another way.
PLAIN = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": None,
    "repetition_penalty": 1.0,
    "generation_kwargs": None,
    "use_transformers_continuous_batching": False,
    "use_transformers_paged": False,
}


@dataclass
class UnorderedSetConfig(RLOOConfig):  # type: ignore[misc]  # trl is not checked
    r"""TRL's ``RLOOConfig`` with the option to train for the best of several completions.

    $$J = E[\max(r(x_1), \dots, r(x_m))] - \beta \, \text{KL}(p \, \| \, p_\text{ref})$$

    The $m$ completions of a prompt in this objective are independent: they are the attempts that will be
    made with the trained model. The objective is estimated from ``num_generations`` distinct completions,
    by :func:`swor.best_of`. Choose ``num_generations`` above $m$, which lowers the variance.

    The KL penalty stays outside of the maximum. For the mean reward, TRL subtracts
    $\beta \log(p / p_\text{ref})$ from every reward, and the result is the same. Inside of a maximum it would
    favour completions that have become less likely than under the reference, and would be no divergence.

    All other settings are those of ``RLOOConfig``.

    Attributes:
        best_of: $m$, the number of completions of which the best one counts, from 1 to ``num_generations``
            and to ``num_generations_eval``. None means the mean reward, and so does 1. It excludes
            ``normalize_advantages``, which scales by the spread of the advantages of the mean reward.
    """

    best_of: int | None = field(
        default=None,
        metadata={
            "help": "Train for the expected best reward of this many independent completions, from 1 to "
            "num_generations; the mean reward by default."
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.best_of is None:
            return
        check_count("best_of", self.best_of)
        for name in ("num_generations", "num_generations_eval"):
            k = getattr(self, name)
            if k is not None and k < self.best_of:
                raise ValueError(
                    f"best_of is {self.best_of} and {name} {k}; expected at most {k}, since the best "
                    f"of m is estimated from m completions or more. Raise {name}, or lower best_of."
                )
        if self.normalize_advantages:
            raise ValueError(
                f"best_of is {self.best_of} and normalize_advantages True; expected False, since TRL "
                "scales by the spread of the advantages of the mean reward. Leave one of them out."
            )


def check_settings(args: RLOOConfig) -> None:
    """Check that completions are drawn from the model itself, at a temperature."""
    for name, value in PLAIN.items():
        given = getattr(args, name, value)  # some versions of TRL have it, some do not
        if given != value:
            raise ValueError(
                f"{name} is {given!r}; expected {value!r}: UnorderedSetTrainer samples from the model "
                "itself, with sample_completions. Leave it out."
            )
    if args.use_vllm:
        raise ValueError(
            "use_vllm is True; expected False: TRL asks vLLM for independent completions, and distinct "
            "ones need the probabilities of the next token at every step. Leave it out, so that the "
            "model itself draws them, or train in a loop of your own with swor.integrations.vllm."
        )
