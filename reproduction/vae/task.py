r"""The training task: minimise $-\text{ELBO} = E_q[-\log p(x \mid z)] + KL(q(z \mid x) \,\|\, p(z))$."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from reproduction.harness.errors import UserError
from reproduction.harness.images import Images
from reproduction.harness.task import Place, Task, seeded
from reproduction.vae.model import CategoricalVAE, Posterior, uniform
from reproduction.vae.published import SAMPLED_KL
from reproduction.vae.settings import METHODS, VAESettings
from swor.estimators.estimator import EstimatorLike
from swor.estimators.learning import WithState
from swor.samplers.distributions import sample


class VAETask(Task[Tensor]):
    """The encoder learns from the estimator and the KL, the decoder from the pathwise term."""

    def __init__(self, settings: VAESettings, images: Images) -> None:
        self.settings, self.images = settings, images
        self.model_settings = replace(settings, data_dir=None, out=None, resume=None)
        self.vae = make_vae(settings, images.train.shape[-1])
        if settings.output_bias == "mean-image":
            self.vae.set_output_bias(images.train.mean(0, dtype=torch.float32))
        self.estimate = make_estimate(
            settings.estimator, self.vae, images.train.shape[-1], seeded(settings.seed, "method")
        )
        self.model = nn.ModuleDict({"vae": self.vae})
        if isinstance(self.estimate, nn.Module):  # it learns, or remembers
            self.model["estimator"] = self.estimate
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.rate)
        self.examples = settings.batch_size
        self.steps = len(images.train) // settings.batch_size
        self._order: tuple[int, Tensor] | None = None
        if self.steps < 1:
            raise UserError(
                f"the batch size is {settings.batch_size} and there are {len(images.train)} "
                "training images; expected at least one batch. Give a smaller --batch-size."
            )

    def batch(self, place: Place) -> Tensor:
        """Return images in an order that is new in every epoch, (share of the batch, pixels)."""
        if self._order is None or self._order[0] != place.epoch:
            generator = seeded(place.seed, "order", place.epoch)
            order = torch.randperm(len(self.images.train), generator=generator)
            self._order = (place.epoch, order)
        start = place.step * self.settings.batch_size
        rows = place.share(self._order[1][start : start + self.settings.batch_size])
        return self.images.train[rows].to(self.device).float()

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the surrogate, and as metrics the −ELBO with the analytic KL, and the KL."""
        posterior = self.vae.posterior(batch)
        kl = self.vae.divergence(posterior)
        name, k = self.settings.estimator, self.settings.samples
        loss = surrogate(self.vae, name, self.estimate, batch, posterior, kl, k, generator)
        with torch.no_grad():
            value = loss
            if not value_is_unbiased(name):
                value = one_sample(self.vae, batch, posterior, generator) + kl
        return loss.mean(), {"negative_elbo": value.mean(), "kl": kl.mean()}

    def validate(self, generator: torch.Generator) -> dict[str, float]:
        """Return the −ELBO and its KL on the validation set."""
        return evaluate(self.vae, self.images.valid, generator)


def make_vae(settings: VAESettings, pixels: int) -> CategoricalVAE:
    """Make the model, of the size of the data, with initial weights from the seed."""
    generator = seeded(settings.seed, "weights")
    return CategoricalVAE(pixels, settings.dims, settings.categories, generator=generator)


def make_estimate(
    name: str, vae: CategoricalVAE, pixels: int, generator: torch.Generator
) -> EstimatorLike:
    """Make an estimator for the posterior of a model; one that reads a context reads the image."""
    entry = METHODS[name]
    context = pixels if entry.takes_context else None
    return entry.make(uniform(vae.n, vae.c), context=context, generator=generator)


def check_applies(estimator: str, n: int, c: int, k: int) -> None:
    """Try an estimator once on a uniform distribution, and refuse what it is not defined for."""
    try:
        generator = torch.Generator()
        made = METHODS[estimator].make(uniform(n, c), generator=generator)
        made(lambda z: z.flatten(-2).sum(-1), uniform(n, c), k, generator=generator)
    except (TypeError, ValueError) as error:
        raise UserError(f"{estimator} does not apply here: {error}") from error


def value_is_unbiased(estimator: str) -> bool:
    """Return whether the value of the surrogate can be reported as the −ELBO."""
    unbiased = METHODS[estimator].unbiased or estimator == "straight_through"
    return unbiased and estimator not in SAMPLED_KL


def surrogate(
    vae: CategoricalVAE,
    name: str,
    estimate: EstimatorLike,
    x: Tensor,
    posterior: Posterior,
    kl: Tensor,
    k: int,
    generator: torch.Generator,
    *,
    kl_in_cost: bool = False,
) -> Tensor:
    r"""Return a surrogate per image, (batch,): its value estimates the −ELBO, its gradient the gradient.

    With the analytic KL, Kool et al. (2020), equation (59); for ARSM with the sampled one, whose cost is
    $-\log p(x \mid z) + \log q(z \mid x) + n \log c$, equation (61). With ``kl_in_cost`` the cost is
    $-\log p(x \mid z) + KL$, as in the released code of the paper: the KL does not depend on z, so the
    expected gradient is the same, and a baseline removes it, but without one it adds variance.
    """
    sampled = name in SAMPLED_KL

    def cost(z: Tensor) -> Tensor:
        likelihood = vae.negative_log_likelihood(x, z)
        if sampled:
            return likelihood + vae.sampled_divergence(posterior, z).detach()
        return likelihood + kl.unsqueeze(-1) if kl_in_cost else likelihood

    if isinstance(estimate, WithState) and METHODS[name].takes_context:
        estimate = partial(estimate, context=x)
    loss = estimate(cost, posterior, k, generator=generator)
    return loss if sampled or kl_in_cost else loss + kl


def one_sample(
    vae: CategoricalVAE, x: Tensor, posterior: Posterior, generator: torch.Generator
) -> Tensor:
    """Return the reconstruction cost of one sample per image, (batch,)."""
    z = sample(posterior, 1, replacement=True, generator=generator).value
    return vae.negative_log_likelihood(x, z).squeeze(-1)


@torch.no_grad()
def evaluate(vae: CategoricalVAE, images: Tensor, generator: torch.Generator) -> dict[str, float]:
    """Return the mean −ELBO with the analytic KL, and that KL, from one sample per image."""
    device = next(vae.parameters()).device
    totals = torch.zeros(2, dtype=torch.float64)
    for rows in images.split(1000):
        x = rows.to(device).float()
        posterior = vae.posterior(x)
        kl = vae.divergence(posterior)
        cost = one_sample(vae, x, posterior, generator)
        totals += torch.stack([(cost + kl).sum(), kl.sum()]).cpu()
    negative_elbo, kl_mean = (totals / len(images)).tolist()
    return {"negative_elbo": negative_elbo, "kl": kl_mean}
