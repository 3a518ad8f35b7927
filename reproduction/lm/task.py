"""The training task: a GPT that learns from the rewards of k completions of every prompt."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import swor
from reproduction.harness.best_of import best_of_loss, log_success_loss
from reproduction.harness.errors import UserError
from reproduction.harness.task import Place, Task, seeded
from reproduction.lm.problem import Sorting
from reproduction.lm.settings import LMSettings
from swor.diagnostics.groups import duplicates, group_statistics
from swor.integrations.transformers import (
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)

CHECK_EVERY = 5  # steps on right answers between validations
MOST_STEPS = 20_000  # on right answers


class SortingTask(Task[Tensor]):
    """Maximise the expected reward of the completions of random prompts."""

    def __init__(self, settings: LMSettings) -> None:
        self.settings = settings
        self.model_settings = replace(settings, out=None, resume=None)
        self.problem = Sorting(settings.digits, settings.base)
        self.steps, self.examples = settings.validate_every, settings.batch_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.model = GPT2LMHeadModel(self._config())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.valid = self.problem.prompts(settings.validation_size, seeded("validation"))

    def _config(self) -> GPT2Config:
        return GPT2Config(
            vocab_size=self.problem.end + 1,
            n_positions=2 * self.problem.length,
            n_embd=self.settings.width,
            n_layer=self.settings.layers,
            n_head=self.settings.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=self.problem.separator,
            eos_token_id=self.problem.end,
            pad_token_id=self.problem.end,
        )

    def begin(self) -> dict[str, float]:
        """Train on right answers until enough prompts are solved, if that is asked for.

        The prompts depend on the seed alone, and the steps on no setting of the estimator, so all
        estimators start from the same weights and the same state of the optimiser.
        """
        from accelerate import PartialState
        from rich.progress import Progress

        until = self.settings.supervised_until
        if until == 0.0:
            return {}
        with Progress(disable=not PartialState().is_main_process) as progress:
            bar = progress.add_task("solved by supervision", total=until)
            for step in range(0, MOST_STEPS, CHECK_EVERY):
                share = self._solved()
                progress.update(bar, completed=share)
                if share >= until:
                    return {"supervised_steps": float(step)}
                for number in range(step, step + CHECK_EVERY):
                    self.supervised_step(number)
        raise UserError(
            f"supervised_until is {until}, but after {MOST_STEPS} steps on right answers the model "
            f"solves {self._solved():.2f} of the prompts; expected as many. Give a lower share or a "
            "larger model."
        )

    def supervised_step(self, step: int) -> None:
        """Take a step on the negative log-probability of the right answers of new prompts."""
        generator = seeded(self.settings.seed, "supervision", step)
        prompts = self.problem.prompts(self.examples, generator).to(self.device)
        answers = self.problem.answers(prompts)
        self.optimizer.zero_grad(set_to_none=True)
        completion_log_probs(self.model, prompts, answers).mean().neg().backward()
        if self.settings.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()

    @torch.no_grad()
    def _solved(self) -> float:
        metrics = self._validate_answers(self.valid.to(self.device))
        return metrics["solved" if self.settings.supervised_by == "greedy" else "right"]

    def reward(self, prompts: Tensor, value: Tensor) -> Tensor:
        """Return the reward of completions (batch, k, length), (batch, k)."""
        if self.settings.reward == "exact":
            return self.problem.solved(prompts, value).float()
        return self.problem.reward(prompts, value)

    def batch(self, place: Place) -> Tensor:
        """Draw new prompts, (prompts, digits + 1)."""
        generator = seeded(place.seed, "prompts", place.epoch, place.step)
        everyone = self.problem.prompts(self.examples, generator)
        return place.share(everyone).to(self.device)

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the surrogate of the negative reward, and statistics of the groups."""
        distinct = self.settings.estimator == "unordered_set"
        draw = sample_completions if distinct else ancestral_completions
        k, length = self.settings.k, self.problem.length
        sample = draw(self.model, batch, k=k, max_new_tokens=length, generator=generator)
        reward = self.reward(batch, sample.value)
        weights = swor.unordered_set(sample) if distinct else swor.rloo(sample)
        metrics = statistics(sample, reward) | {"reward": weights.mean(reward)}
        if self.settings.best_of is not None:
            loss = -best_of_loss(sample, reward, self.settings.best_of, largest=True)
        elif self.settings.log_success is not None:
            loss = -log_success_loss(sample, reward, self.settings.log_success)
        else:
            loss = weights.loss(-reward)
        return loss.mean(), {n: m.detach().mean() for n, m in metrics.items()}

    def validate(self, generator: torch.Generator) -> dict[str, float]:
        """Return metrics of greedy completions of fixed prompts, and of samples if asked for.

        ``solved`` is the share of right greedy completions, and ``right`` the mean probability of the
        right one, which is the share of right completions among samples.
        """
        prompts = self.valid.to(self.device)
        return self._validate_answers(prompts) | self._validate_samples(prompts, generator)

    def _validate_answers(self, prompts: Tensor) -> dict[str, float]:
        greedy = beam_completions(self.model, prompts, k=1, max_new_tokens=self.problem.length)
        right = completion_log_probs(self.model, prompts, self.problem.answers(prompts))
        return {
            "reward": float(self.reward(prompts, greedy.value).mean()),
            "solved": float(self.problem.solved(prompts, greedy.value).float().mean()),
            "probability": float(greedy.log_p.exp().mean()),
            "right": float(right.exp().mean()),
        }

    def _validate_samples(self, prompts: Tensor, generator: torch.Generator) -> dict[str, float]:
        """Return the mean reward of samples and of the best of several, if the settings say so."""
        m = self.settings.validate_best_of or self.settings.best_of
        if m is None:
            return {}
        draw = partial(ancestral_completions, max_new_tokens=self.problem.length)
        sample = draw(self.model, prompts, k=m, generator=generator)
        reward = self.reward(prompts, sample.value)
        solved = self.problem.solved(prompts, sample.value)
        return {
            "sampled_reward": float(reward.mean()),
            "best_of_reward": float(reward.amax(-1).mean()),
            "sampled_solved": float(solved.float().mean()),
            "best_of_solved": float(solved.any(-1).float().mean()),
        }


def statistics(sample: swor.Sample, reward: Tensor) -> dict[str, Tensor]:
    """Return statistics of each group, (batch,), which are comparable for both ways to sample.

    ``duplicates`` is the share of completions that repeat another one of their group; ``no_signal``,
    whether all completions have the same reward; the effective sample size counts a completion that
    was drawn several times once, with their weights together.
    """
    out = {
        "duplicates": duplicates(sample.value),
        "no_signal": (reward.amax(-1) == reward.amin(-1)).float(),
    }
    if sample.scheme == swor.Scheme.WITHOUT_REPLACEMENT:
        group = group_statistics(sample, reward)
        return out | group._asdict()
    same = (sample.value.unsqueeze(2) == sample.value.unsqueeze(1)).all(-1)
    return out | {"effective_sample_size": 1.0 / (same.float().mean(-1) / sample.k).sum(-1)}
