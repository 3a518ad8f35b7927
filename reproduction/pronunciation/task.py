"""The training task: a network that pronounces words, fine-tuned by exact match."""

from __future__ import annotations

import torch
from torch import Tensor

import swor
from reproduction.harness.best_of import best_of_loss, log_success_loss
from reproduction.harness.task import Place, Task, seeded
from reproduction.pronunciation.model import Pronouncer, Pronunciations, trained_pronouncer
from reproduction.pronunciation.settings import PronunciationSettings
from reproduction.pronunciation.words import Words, words
from swor.diagnostics.groups import duplicates

TRIES = 8  # of pass@m on held-out words
RULES = {"rloo": swor.rloo, "unordered_set": swor.unordered_set}


class PronunciationTask(Task[Words]):
    """Maximise the success of the pronunciations of random words."""

    def __init__(self, settings: PronunciationSettings) -> None:
        self.settings = settings
        self.steps, self.examples = settings.validate_every, settings.batch_size
        self.model: Pronouncer = trained_pronouncer()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.learning_rate)
        self.train = words("train")
        self.valid = words(settings.validate_on, settings.validation_size)
        self.before = greedy_right(self.model, self.valid).bool()  # by the weights of the start

    def batch(self, place: Place) -> Words:
        """Draw words at random."""
        generator = seeded(place.seed, "words", place.epoch, place.step)
        index = torch.randint(len(self.train.letters), (self.examples,), generator=generator)
        return self.train.take(place.share(index))

    def loss(self, batch: Words, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the surrogate of the negative objective, and statistics of the groups."""
        sample = draw(self.model, batch, self.settings.estimator, self.settings.k, generator)
        success = batch.right(sample.value)
        loss = objective_loss(self.settings, sample, success)
        metrics = {
            "success": RULES[self.settings.estimator](sample).mean(success),
            "duplicates": duplicates(sample.value),
            "no_signal": (success.amax(-1) == success.amin(-1)).float(),
        }
        return loss.mean(), {name: metric.detach().mean() for name, metric in metrics.items()}

    @torch.no_grad()
    def validate(self, generator: torch.Generator) -> dict[str, float]:
        """Return the shares of held-out words that are right: greedy, by one draw, and by one of several.

        The last two are exact, by the probabilities of the right pronunciations. All are also given for
        the words that greedy decoding had right before training, and for those that it had wrong.
        """
        chance = right_probability(self.model, self.valid)
        several = 1.0 - (1.0 - chance) ** TRIES
        greedy = greedy_right(self.model, self.valid)
        found = {"greedy": greedy, "sampled": chance, f"pass_at_{TRIES}": several}
        parts = {"": torch.ones_like(self.before), "_right_before": self.before}
        parts["_wrong_before"] = ~self.before
        return {
            f"{name}{part}": float(share[chosen].double().mean())
            for name, share in found.items()
            for part, chosen in parts.items()
        }


def draw(
    model: Pronouncer, batch: Words, estimator: str, k: int, generator: torch.Generator
) -> swor.Sample:
    """Draw k pronunciations of every word, distinct for unordered_set and independent for rloo."""
    distinct = estimator == "unordered_set"
    sampler = swor.stochastic_beam_search if distinct else swor.ancestral_sample
    return sampler(model(batch.letters), k, generator=generator)


def objective_loss(settings: PronunciationSettings, sample: swor.Sample, success: Tensor) -> Tensor:
    """Return the loss of each word, (words,), whose gradient is that of the negative objective."""
    if settings.objective == "best_of":
        return -best_of_loss(sample, success, settings.order, largest=True)
    if settings.objective == "log_success":
        return -log_success_loss(sample, success, settings.order)
    return RULES[settings.estimator](sample).loss(-success)


@torch.no_grad()
def greedy_right(model: Pronouncer, of: Words) -> Tensor:
    """Return whether greedy pronunciations are right, (words,)."""
    return of.right(swor.beam_search(model(of.letters), 1).value).squeeze(-1)


@torch.no_grad()
def right_probability(model: Pronouncer, of: Words) -> Tensor:
    """Return the probability that a draw is right, (words,): the sum over the right pronunciations."""
    word, place = (of.answers[..., 0] >= 0).nonzero(as_tuple=True)  # few words have several
    spoken = Pronunciations(model, model(of.letters).hidden[word])
    chance = spoken.log_prob(of.answers[word, place].unsqueeze(1)).squeeze(1).exp()
    return chance.new_zeros(len(of.letters)).index_add(0, word, chance)
