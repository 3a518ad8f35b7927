r"""$-\text{ELBO} = E_{q(z \mid x)}[-\log p(x \mid z)] + KL(q(z \mid x) \,\|\, p(z))$, minimised."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from swor.experiments.data import Images
from swor.experiments.errors import UserError
from swor.experiments.task import Place, Task, seeded
from swor.experiments.vae.methods import Method
from swor.experiments.vae.model import CategoricalVAE, Posterior
from swor.experiments.vae.settings import VAE
from swor.samplers.distributions import sample


class VAETask(Task[Tensor]):
    """The encoder learns from the estimator and the KL, the decoder from the pathwise term."""

    def __init__(self, settings: VAE, images: Images) -> None:
        n, c = settings.dims, settings.categories
        self.settings, self.images = settings, images
        self.vae = build(settings, images.train.shape[-1])
        self.method = Method(settings.estimator, n, c, generator=seeded(settings.seed, "method"))
        self.model = nn.ModuleDict({"vae": self.vae, "method": self.method})
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
        """Images of a new order in every epoch, (share of the batch, pixels)."""
        if self._order is None or self._order[0] != place.epoch:
            generator = seeded(place.seed, "order", place.epoch)
            order = torch.randperm(len(self.images.train), generator=generator)
            self._order = (place.epoch, order)
        start = place.step * self.settings.batch_size
        rows = place.share(self._order[1][start : start + self.settings.batch_size])
        return self.images.train[rows].to(self.device).float()

    def loss(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The surrogate of the −ELBO, and as metrics the −ELBO with the analytic KL, and the KL."""
        posterior = self.vae.posterior(batch)
        kl = self.vae.divergence(posterior)
        loss = surrogate(
            self.vae, self.method, batch, posterior, kl, self.settings.samples, generator
        )
        with torch.no_grad():
            if self.method.value_is_unbiased:
                negative_elbo = loss
            else:
                negative_elbo = one_sample(self.vae, batch, posterior, generator) + kl
            metrics = {"negative_elbo": negative_elbo.mean(), "kl": kl.mean()}
        return loss.mean(), metrics

    def validate(self, generator: torch.Generator) -> dict[str, float]:
        """The −ELBO and its KL on the validation set."""
        return evaluate(self.vae, self.images.valid, generator)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device


def build(settings: VAE, pixels: int) -> CategoricalVAE:
    """The model, sized to the data, with weights from the seed."""
    generator = seeded(settings.seed, "weights")
    return CategoricalVAE(pixels, settings.dims, settings.categories, generator=generator)


def surrogate(
    vae: CategoricalVAE,
    method: Method,
    x: Tensor,
    posterior: Posterior,
    kl: Tensor,
    k: int,
    generator: torch.Generator,
) -> Tensor:
    r"""Per image, the −ELBO in value, its gradient estimate in gradient, (batch,).

    With the analytic KL, Kool et al. (2020), equation (59); for ARSM with the sampled one, whose cost is
    $-\log p(x \mid z) + \log q(z \mid x) + n \log c$, equation (61).
    """

    def cost(z: Tensor) -> Tensor:
        return vae.negative_log_likelihood(x, z)

    def cost_and_kl(z: Tensor) -> Tensor:
        return cost(z) + vae.sampled_divergence(posterior, z).detach()

    if method.sampled_kl:
        return method.estimate(cost_and_kl, posterior, k, generator)
    return method.estimate(cost, posterior, k, generator) + kl


def one_sample(
    vae: CategoricalVAE, x: Tensor, posterior: Posterior, generator: torch.Generator
) -> Tensor:
    """The reconstruction cost of one sample per image, (batch,)."""
    z = sample(posterior, 1, replacement=True, generator=generator).value
    return vae.negative_log_likelihood(x, z).squeeze(-1)


@torch.no_grad()
def evaluate(vae: CategoricalVAE, images: Tensor, generator: torch.Generator) -> dict[str, float]:
    """The mean −ELBO with the analytic KL, and that KL, from one sample per image."""
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
