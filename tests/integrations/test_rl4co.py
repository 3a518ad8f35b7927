"""The integration with rl4co: its own numbers, proofs by enumeration, training end to end.

Policies are in evaluation mode wherever numbers are compared: in training mode batch normalisation
makes the distribution of an instance depend on the other instances of its batch.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from itertools import permutations, product

import pytest
import torch
from documentation import DOCS, run_code
from problems import seeded
from torch import Tensor, nn

import swor

pytest.importorskip("rl4co", reason="rl4co is not installed: run `make test-rl4co`")

from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from rl4co.envs import PDPRuinRepairEnv, RL4COEnvBase, TSPEnv, TSPkoptEnv, get_env
from rl4co.models import (
    AttentionModelPolicy,
    ConstructiveEncoder,
    ConstructivePolicy,
    DACTPolicy,
    L2DPolicy,
    MatNetPolicy,
    MDAMPolicy,
    NonAutoregressivePolicy,
    PointerNetworkPolicy,
)
from rl4co.models.zoo.am.decoder import AttentionModelDecoder
from rl4co.models.zoo.polynet.policy import PolyNetPolicy
from rl4co.utils import RL4COTrainer
from rl4co.utils.ops import batchify, unbatchify
from tensordict import TensorDict

from swor.integrations.rl4co import (
    PolicyGradient,
    SolutionModel,
    ancestral_solutions,
    beam_solutions,
    best_of_k,
    sample_solutions,
    solution_loss,
)
from swor.integrations.rl4co import _checks as checks
from swor.integrations.rl4co import solutions as drawing

pytestmark = pytest.mark.filterwarnings("ignore")  # of rl4co and Lightning

SIZES: dict[str, dict[str, object]] = {
    "atsp": {"num_loc": 5},
    "cvrp": {"num_loc": 6},
    "cvrptw": {"num_loc": 5},
    "fjsp": {"num_jobs": 3, "num_machines": 2},
    "flp": {"num_loc": 6, "to_choose": 3},
    "jssp": {"num_jobs": 3, "num_machines": 3, "max_ops_per_job": 4, "one2one_ma_map": False},
    "mcp": {"num_items": 12, "num_sets": 6, "n_sets_to_choose": 3},
    "mtsp": {"num_loc": 6},
    "op": {"num_loc": 6},
    "pctsp": {"num_loc": 6},
    "pdp": {"num_loc": 6},
    "sdvrp": {"num_loc": 5},
    "shpp": {"num_loc": 5},
    "tsp": {"num_loc": 6},
}
DIFFERENT_LENGTHS = {"cvrp", "cvrptw", "fjsp", "jssp", "mtsp", "op", "pctsp", "sdvrp"}
SMALL = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1, "feedforward_hidden": 16}


def attention(name: str, **given: object) -> AttentionModelPolicy:
    torch.manual_seed(0)
    return AttentionModelPolicy(env_name=name, **SMALL | given).eval()


def policy_for(name: str) -> ConstructivePolicy:
    torch.manual_seed(0)
    if name in ("fjsp", "jssp"):
        return L2DPolicy(env_name=name, embed_dim=16).eval()
    if name == "atsp":
        return MatNetPolicy(env_name=name, embed_dim=16, num_heads=2, num_encoder_layers=1).eval()
    return attention(name)


def double(td: TensorDict) -> TensorDict:
    return td.apply(lambda x: x.double() if x.is_floating_point() else x)


def problem(name: str, batch: int = 3, **sizes: int) -> tuple[RL4COEnvBase, TensorDict]:
    torch.manual_seed(0)
    env = get_env(name, generator_params=sizes or SIZES[name])
    return env, env.reset(batch_size=[batch])


def tsp(n: int, batch: int = 3) -> tuple[RL4COEnvBase, TensorDict]:
    return problem("tsp", batch, num_loc=n)


DRAW: dict[str, Callable[..., object]] = {
    "distinct": sample_solutions,
    "independent": ancestral_solutions,
    "beam": beam_solutions,
}


@pytest.mark.parametrize("draw", DRAW)
@pytest.mark.parametrize("name", SIZES)
def test_log_probabilities_and_rewards_are_those_of_rl4co(name, draw):
    env, td = problem(name)
    policy, k = policy_for(name), 5
    torch.manual_seed(1)  # MatNet's encoder is random
    found = DRAW[draw](policy, env, td, k)
    assert found.sample.log_p.requires_grad
    rows = found.sample.value.transpose(0, 1).flatten(0, 1)
    torch.manual_seed(1)
    if name in ("flp", "mcp", "mtsp"):  # where rl4co cannot decode several solutions of an instance
        out = policy(batchify(td, k), env, actions=rows)
    else:
        out = policy(td.clone(), env, actions=rows, num_samples=k)
    assert out["actions"].shape == rows.shape
    log_p, reward = (unbatchify(out[x], k) for x in ("log_likelihood", "reward"))
    torch.testing.assert_close(found.sample.log_p, log_p, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.reward, reward, rtol=0, atol=1e-6)
    if draw != "independent":
        assert all(len({tuple(x) for x in group}) == k for group in found.sample.value.tolist())


@pytest.mark.parametrize("name", sorted(DIFFERENT_LENGTHS))
def test_complete_solutions_stay_as_they_are(name):
    env, td = problem(name, batch=8)
    model = SolutionModel(policy_for(name), env, td)
    sample = swor.ancestral_sample(model, 6, generator=seeded())
    ended = sample.value == model.end
    assert ended.int().diff(dim=-1).ge(0).all()  # nothing follows END but END
    lengths = ended.logical_not().sum(-1)
    assert lengths.min() < lengths.max()
    state = model.after(sample.value)
    assert state.actions.shape[-1] == lengths.max()
    assert torch.equal(state.actions[~ended[..., : lengths.max()]], sample.value[~ended])


def every_solution(env: RL4COEnvBase, td: TensorDict) -> Tensor:
    """All solutions of one instance by breadth-first search of the environment, filled up with −1."""
    found, frontier = [], [(td, [])]
    while frontier:
        state, actions = frontier.pop()
        for action in state["action_mask"][0].nonzero().flatten().tolist():
            following = env.step(state.clone().set("action", torch.tensor([action])))["next"]
            done = bool(following["done"].all())
            (found if done else frontier).append((following, [*actions, action]))
    longest = max(len(actions) for _, actions in found)
    return torch.tensor([actions + [-1] * (longest - len(actions)) for _, actions in found])


class Every:
    """A small problem with all its solutions, in float64."""

    def __init__(self, name: str, n: int) -> None:
        self.env, td = problem(name, 1, num_loc=n)
        self.td = double(td)
        if name == "cvrp":
            self.td["demand"] = torch.full_like(self.td["demand"], 0.3)  # at most 3 per route
        self.policy = attention(name).double()
        value = every_solution(self.env, self.td)
        self.value = value.where(value >= 0, self.td["action_mask"].shape[-1])

    def exact_cost(self) -> Tensor:
        """The expected cost, with gradient: all solutions, each evaluated anew."""
        model = SolutionModel(self.policy, self.env, self.td)
        state = model.after(self.value.unsqueeze(0))
        assert state.log_p.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
        self.log_p = state.log_p.detach()[0]
        return -(state.log_p.exp() * model.reward(state)).sum()

    def gradient(self, loss: Tensor) -> list[Tensor]:
        parameters = list(self.policy.parameters())
        return list(
            torch.autograd.grad(loss, parameters, materialize_grads=True, allow_unused=True)
        )


class AllSamples:
    """Stands in for the samplers: every ordered sample of k solutions once, on the batch axis."""

    def __init__(self, every: Every, k: int, *, replacement: bool) -> None:
        n = len(every.value)
        orders = product(range(n), repeat=k) if replacement else permutations(range(n), k)
        self.index = torch.tensor(list(orders))
        self.value, self.replacement = every.value[self.index], replacement
        log_p = every.log_p[self.index]
        if replacement:
            self.log_rest, self.probability = None, log_p.sum(-1).exp()
            return
        inside = torch.zeros(len(self.index), n, dtype=torch.bool).scatter(-1, self.index, True)
        self.log_rest = every.log_p.expand_as(inside).masked_fill(inside, -torch.inf).logsumexp(-1)
        self.probability = swor.log_prob_ordered(log_p, self.log_rest).exp()

    def __call__(self, model: SolutionModel, k: int, *, generator: object = None) -> swor.Sample:
        scheme = "with_replacement" if self.replacement else "without_replacement"
        return swor.Sample(self.value, model.log_prob(self.value), self.log_rest, scheme=scheme)


RULES = (
    *("unordered_set", "rloo", "reinforce_greedy", "unordered_set_no_baseline"),
    *("sum_and_sample", "raj", "single_sample"),
)


@pytest.mark.parametrize(
    "name, n, solutions, rules", [("tsp", 5, 120, RULES), ("cvrp", 4, 168, RULES[:2])]
)
def test_the_loss_is_unbiased(name, n, solutions, rules, monkeypatch):
    """Averaged over all samples, the gradient of the loss is that of the expected cost."""
    every = Every(name, n)
    assert len(every.value) == solutions
    exact = every.exact_cost()
    target = every.gradient(exact)
    assert max(g.abs().max() for g in target) > 1e-2
    for estimator in rules:
        scheme = swor.ESTIMATORS[estimator].scheme
        samples = AllSamples(every, 2, replacement=scheme == swor.Scheme.WITH_REPLACEMENT)
        monkeypatch.setattr(drawing, "stochastic_beam_search", samples)
        monkeypatch.setattr(drawing, "ancestral_sample", samples)
        copies = every.td.expand(len(samples.index)).contiguous()
        loss, _ = solution_loss(every.policy, every.env, copies, 2, estimator=estimator)
        average = samples.probability @ loss
        assert average.item() == pytest.approx(exact.item(), abs=1e-9)
        for found, wanted in zip(every.gradient(average), target, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


def test_the_loss_is_unbiased_with_three_solutions(monkeypatch):
    every = Every("tsp", 4)
    target = every.gradient(every.exact_cost())
    samples = AllSamples(every, 3, replacement=False)
    monkeypatch.setattr(drawing, "stochastic_beam_search", samples)
    copies = every.td.expand(len(samples.index)).contiguous()
    loss, _ = solution_loss(every.policy, every.env, copies, 3)
    for found, wanted in zip(every.gradient(samples.probability @ loss), target, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["tsp", "cvrp", "op", "pctsp"])
@pytest.mark.parametrize("draw", [swor.stochastic_beam_search, swor.ancestral_sample])
def test_the_gradient_of_a_search_is_that_of_a_second_pass(name, draw):
    env, td = problem(name)
    policy = policy_for(name).double()
    td = double(td)
    model = SolutionModel(policy, env, td)
    sample = draw(model, 5, generator=seeded())
    again = SolutionModel(policy, env, td).log_prob(sample.value)
    torch.testing.assert_close(sample.log_p, again, rtol=0, atol=1e-12)
    weight = torch.randn(again.shape, generator=seeded(), dtype=again.dtype)
    parameters = [p for p in policy.parameters() if p.requires_grad]
    first, second = (
        torch.autograd.grad(
            (x * weight).sum(), parameters, materialize_grads=True, allow_unused=True
        )
        for x in (sample.log_p, again)
    )
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_the_encoder_runs_once_and_the_decoder_once_per_step():
    env, td = tsp(6)
    policy = attention("tsp")
    calls = {"encoder": 0, "decoder": 0}
    for name in calls:
        getattr(policy, name).register_forward_hook(
            lambda *_, name=name: calls.__setitem__(name, calls[name] + 1)
        )
    found = sample_solutions(policy, env, td, 4)
    found.sample.log_p.sum().backward()
    assert calls == {"encoder": 1, "decoder": 6}


def test_without_gradient_nothing_is_kept_for_it():
    env, td = tsp(5)
    with torch.no_grad():
        found = sample_solutions(attention("tsp"), env, td, 4)
    assert not found.sample.log_p.requires_grad


def test_all_solutions_and_forced_starts():
    env, td = tsp(4)
    policy = attention("tsp").double()
    found = sample_solutions(policy, env, double(td), 24)
    assert found.sample.log_p.exp().sum(-1).sub(1.0).abs().max() < 1e-12
    assert (found.sample.log_rest == -torch.inf).all()
    tours = {tuple(x) for x in found.sample.value[0].tolist()}
    assert tours == set(
        permutations(range(4))
    )  # the four rotations of a tour are different solutions
    for start in (2, torch.tensor([0, 3, 1])):
        found = sample_solutions(policy, env, double(td), 6, start=start)
        first = torch.as_tensor(start).expand(3)
        assert (found.sample.value[..., 0] == first[:, None]).all()
        assert found.sample.log_p.exp().sum(-1).sub(1.0).abs().max() < 1e-12
        assert all(len({tuple(x) for x in group}) == 6 for group in found.sample.value.tolist())


def test_a_forced_start_is_not_paid_for():
    """Its log-probability is 0, as in rl4co's multistart decoding."""
    env, td = tsp(5)
    policy = attention("tsp")
    found = sample_solutions(policy, env, td, 4, start=3)
    rows = found.sample.value.transpose(0, 1).flatten(0, 1)
    out = policy(td.clone(), env, actions=rows, num_samples=4, return_sum_log_likelihood=False)
    rest = unbatchify(out["log_likelihood"][:, 1:].sum(-1), 4)
    torch.testing.assert_close(found.sample.log_p, rest, rtol=0, atol=1e-5)


class Errand(TSPEnv):
    """Ends at node 0, and then allows no action at all."""

    def _step(self, td: TensorDict) -> TensorDict:
        td = super()._step(td)
        td["done"] = td["done"] | ~td["action_mask"][:, 0]
        td["action_mask"] = td["action_mask"] & ~td["done"].unsqueeze(-1)
        return td


def test_complete_solutions_without_any_action_left():
    _, td = tsp(4)
    env = Errand(generator_params={"num_loc": 4}, check_solution=False)
    found = sample_solutions(attention("tsp").double(), env, double(td), 16)
    assert found.sample.log_p.exp().sum(-1).sub(1.0).abs().max() < 1e-12
    found.sample.log_p.sum().backward()
    with pytest.raises(ValueError, match="only 16"):
        sample_solutions(attention("tsp"), env, td, 20)


def test_a_beam_search_of_width_one_is_greedy():
    for name in ("tsp", "cvrp", "jssp"):
        env, td = problem(name)
        policy = policy_for(name)
        found = beam_solutions(policy, env, td, 1)
        greedy = policy(td.clone(), env, decode_type="greedy")
        assert torch.equal(found.sample.value[:, 0], greedy["actions"])


def test_a_generator_makes_it_reproducible():
    env, td = problem("cvrp")
    policy = attention("cvrp")
    for draw in (sample_solutions, ancestral_solutions):
        a, b = (draw(policy, env, td, 4, generator=seeded()) for _ in range(2))
        assert torch.equal(a.sample.value, b.sample.value)


class Heatmap(ConstructiveEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(-3.0))

    def forward(self, td: TensorDict) -> tuple[Tensor, None]:
        return self.scale * torch.cdist(td["locs"], td["locs"]), None


class RepeatingDecoder(AttentionModelDecoder):
    """Repeats its cache in the hook, for the number of solutions that it is told."""

    def pre_decoder_hook(self, td, env, embeddings, num_starts=0):
        td, env, cache = super().pre_decoder_hook(td, env, embeddings, num_starts)
        return td, env, cache.batchify(max(num_starts, 1))

    def forward(self, td, cached, num_starts=0):
        return super().forward(td, cached, 0)


def test_other_decoders():
    env, td = tsp(5)
    repeating = RepeatingDecoder(embed_dim=16, num_heads=2, env_name="tsp")
    for policy in (NonAutoregressivePolicy(Heatmap()), attention("tsp", decoder=repeating)):
        found = sample_solutions(policy, env, td, 7)
        rows = found.sample.value.transpose(0, 1).flatten(0, 1)
        out = policy(td.clone(), env, actions=rows, num_samples=7)
        log_p = unbatchify(out["log_likelihood"], 7)
        torch.testing.assert_close(found.sample.log_p, log_p, rtol=0, atol=1e-5)


def test_baselines_are_those_of_the_estimators():
    """What the costs are compared with, from the same random numbers."""
    env, td = tsp(5)
    policy = attention("tsp")
    with torch.no_grad():
        greedy = -beam_solutions(policy, env, td, 1).reward
    expected = {
        "reinforce_no_baseline": lambda cost, noise: torch.zeros(1),
        "reinforce_batch_mean": lambda cost, noise: swor.batch_mean(cost),
        "reinforce_greedy": lambda cost, noise: greedy,
        "reinforce_sampled_baseline": lambda cost, noise: (
            -ancestral_solutions(policy, env, td, 4, generator=noise).reward
        ),
        "reinforce_shared_sampled_baseline": lambda cost, noise: (
            -ancestral_solutions(policy, env, td, 1, generator=noise).reward
        ),
    }
    for name, baseline in expected.items():
        noise = seeded()
        sample, reward = ancestral_solutions(policy, env, td, 4, generator=noise)
        advantage = -reward - baseline(-reward, noise)
        wanted = (sample.log_p * advantage).sum(-1) / 4
        found, _ = solution_loss(policy, env, td, 4, estimator=name, generator=seeded())
        weights = list(policy.decoder.parameters())
        for a, b in zip(
            *(torch.autograd.grad(x.sum(), weights, allow_unused=True) for x in (found, wanted)),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def small_module(**given: object) -> PolicyGradient:
    env, _ = tsp(6)
    sizes = {"batch_size": 8, "train_data_size": 16, "val_data_size": 8, "test_data_size": 8}
    return PolicyGradient(env, attention("tsp"), **{"k": 4} | sizes | given)


def trainer(folder, epochs=2, callbacks=None, **given) -> RL4COTrainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return RL4COTrainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        callbacks=callbacks,
        default_root_dir=str(folder),
        **quiet | given,
    )


def state(module: PolicyGradient) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in module.policy.state_dict().items()}


class Watch(Callback):
    """Keeps what a callback is told after every step."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, float]] = []

    def on_train_batch_end(self, run, *_: object) -> None:
        self.metrics.append({name: float(x) for name, x in run.callback_metrics.items()})


def test_the_trainer_of_rl4co_saves_and_resumes(tmp_path):
    watch = Watch()
    saving = ModelCheckpoint(dirpath=tmp_path, save_top_k=-1, filename="{epoch}")
    first = small_module(start=0)
    trainer(tmp_path, callbacks=[watch, saving], precision="32-true").fit(first)
    assert len(watch.metrics) == 4
    assert all({"train/loss", "train/reward", "train/max_reward"} <= set(m) for m in watch.metrics)
    assert all(m["train/max_reward"] >= m["train/reward"] for m in watch.metrics)
    assert all(m["train/reward"] == -m["train/loss"] for m in watch.metrics)
    path = tmp_path / "epoch=1.ckpt"
    again = PolicyGradient.load_from_checkpoint(path, env=first.env, policy=attention("tsp"))
    assert again.hparams["k"] == 4 and again.hparams["estimator"] == "unordered_set"
    assert again.start == 0
    for name, weights in state(again).items():
        assert torch.equal(weights, first.policy.state_dict()[name])
    resumed = small_module(start=0)
    run = trainer(tmp_path, epochs=3, precision="32-true")
    run.fit(resumed, ckpt_path=tmp_path / "epoch=0.ckpt")
    assert run.global_step == 6
    tested = run.test(resumed, verbose=False)[0]
    assert set(tested) == {"test/reward", "test/max_reward"}


def test_mixed_precision_and_other_metrics(tmp_path):
    """rl4co's default precision; on a CPU this is bfloat16."""
    module = small_module(metrics={"val": ["reward", "max_reward"]})
    before = state(module)
    run = trainer(tmp_path, epochs=1)
    run.fit(module)
    assert {"val/reward", "val/max_reward", "train/loss"} <= set(run.callback_metrics)
    assert any(not torch.equal(before[name], x) for name, x in state(module).items())
    assert all(x.isfinite().all() for x in state(module).values())


def test_every_rule_trains():
    names = [
        n
        for n, e in swor.ESTIMATORS.items()
        if e.rule and e.scheme in ("without_replacement", "with_replacement")
    ]
    assert {"unordered_set", "rloo", "sum_and_sample", "importance_weighted"} <= set(names)
    for name in names:
        module = small_module(estimator=name)
        module.log_metrics = lambda *_, **__: {}
        loss = module.shared_step(module.env.generator([8]), 0, "train")["loss"]
        loss.backward()
        gradients = [p.grad for p in module.policy.parameters() if p.grad is not None]
        assert gradients and all(g.isfinite().all() for g in gradients), name
        assert any(g.abs().max() > 0 for g in gradients), name


def test_training_shortens_tours():
    torch.manual_seed(0)
    module = small_module(k=6)
    module.log_metrics = lambda *_, **__: {}
    optimizer = torch.optim.Adam(module.policy.parameters(), lr=5e-3)
    instances = module.env.reset(module.env.generator([200]))

    def length() -> float:
        with torch.no_grad():
            out = module.policy.eval()(instances.clone(), module.env, decode_type="greedy")
        module.policy.train()
        return -out["reward"].mean().item()

    before = length()
    for _ in range(60):
        optimizer.zero_grad()
        module.shared_step(module.env.generator([32]), 0, "train")["loss"].backward()
        optimizer.step()
    assert length() < before - 0.2


def test_the_best_of_k_beside_rl4co():
    env, td = tsp(5, batch=4)
    policy = attention("tsp").train()
    policy.encoder.eval()  # frozen by the user
    methods = ("distinct", "sampling", "multistart_sampling", "multistart_greedy")
    best = best_of_k(policy, env, td, 120, methods=methods, generator=seeded())
    assert policy.training and not policy.encoder.training
    every = every_solution(env, td[:1])
    for method in methods:
        assert best[method].shape == (4, 120)
        assert (best[method].diff(dim=-1) >= 0).all()
    for i in range(4):
        optimum = env.get_reward(td[i : i + 1].expand(120).contiguous(), every).max()
        assert best["distinct"][i, -1] == pytest.approx(optimum.item(), abs=1e-6)
        assert all(best[method][i, -1] <= optimum + 1e-6 for method in methods)
    greedy = policy.eval()(td.clone(), env, decode_type="multistart_greedy", num_starts=3)
    expected = unbatchify(greedy["reward"], 3).cummax(-1).values
    torch.testing.assert_close(best["multistart_greedy"][:, :3], expected)
    with pytest.raises(ValueError, match="methods has 'beam'; expected 'distinct' or one of"):
        best_of_k(policy, env, td, 2, methods=["beam"])


def test_the_best_of_one():
    env, td = tsp(5)
    best = best_of_k(
        attention("tsp"), env, td, 1, methods=["distinct", "sampling", "multistart_greedy"]
    )
    assert all(reward.shape == (3, 1) for reward in best.values())


@pytest.mark.parametrize("env", [TSPkoptEnv, PDPRuinRepairEnv])
def test_environments_that_are_not_sequential(env):
    _, td = tsp(4)
    with pytest.raises(
        TypeError, match=f"env is a {env.__name__}; expected a sequential environment"
    ):
        sample_solutions(attention("tsp"), env(), td, 2)
    with pytest.raises(TypeError, match="expected a sequential environment"):
        PolicyGradient(env(), attention("tsp"))


def test_policies_that_cannot_be_sampled_from():
    env, td = tsp(4)
    dact = DACTPolicy(env_name="tsp_kopt")
    cases = {
        "policy is a DACTPolicy; expected a ConstructivePolicy": dact,
        "policy is a PointerNetworkPolicy; expected a ConstructivePolicy": PointerNetworkPolicy(
            "tsp"
        ),
        "the decoder of the ConstructivePolicy is a NoneType": ConstructivePolicy(Heatmap(), None),
        "the decoder of the MDAMPolicy is a MDAMDecoder": MDAMPolicy(env_name="tsp"),
        "another distribution for every solution": PolyNetPolicy(k=4, env_name="tsp"),
    }
    for message, policy in cases.items():
        with pytest.raises(TypeError, match=message):
            sample_solutions(policy, env, td, 2)
        with pytest.raises(TypeError, match=message):
            PolicyGradient(env, policy)


def test_more_solutions_than_there_are():
    for name, k, possible in (("tsp", 7, 6), ("tsp", 100, 6)):
        env, td = problem(name, num_loc=3)
        with pytest.raises(ValueError, match=f"k is {k}, but .* only {possible}"):
            sample_solutions(attention(name), env, td, k)
    env, td = problem("cvrp", num_loc=2)
    with pytest.raises(ValueError, match=r"k is 50, but .* only 4"):
        sample_solutions(attention("cvrp"), env, td, 50)


def test_bad_instances_starts_and_steps():
    env, td = tsp(4)
    policy = attention("tsp")
    with pytest.raises(ValueError, match=r"no 'action_mask'; expected .* Give env.reset\(td\)"):
        sample_solutions(policy, env, env.generator([3]), 2)
    with pytest.raises(ValueError, match=r"batch size \(3, 1\); expected one axis"):
        sample_solutions(policy, env, td.unsqueeze(1), 2)
    with pytest.raises(ValueError, match=r"start is 4 for instance 0; .* one of \[0, 1, 2, 3\]"):
        sample_solutions(policy, env, td, 2, start=4)
    with pytest.raises(ValueError, match="start is 9 for instance 1"):
        sample_solutions(policy, env, td, 2, start=torch.tensor([0, 9, 1]))
    with pytest.raises(
        ValueError, match=r"not complete after 2 actions; .* Give a larger max_steps"
    ):
        sample_solutions(policy, env, td, 2, max_steps=2)
    sample_solutions(policy, env, td, 2, max_steps=4)


@pytest.mark.parametrize(
    "name", ["gumbel_softmax", "stratified", "reinforce_moving_average", "no_such"]
)
def test_estimators_that_are_no_rule_of_sequences(name):
    with pytest.raises(
        ValueError, match=f"estimator is '{name}'; expected one that .* unordered_set"
    ):
        small_module(estimator=name)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="bath_size"):
        small_module(bath_size=3)


def test_untested_versions_are_refused(monkeypatch):
    monkeypatch.setattr(checks, "version", lambda name: "1.2.0")
    with pytest.raises(ImportError, match=r"rl4co 1.2.0 is installed; expected 0.7"):
        checks.check_version()


def test_instances_are_left_as_they_are():
    env, td = problem("cvrp")
    before = td.clone()
    sample_solutions(attention("cvrp"), env, td, 4)
    best_of_k(attention("cvrp"), env, td, 1)
    assert set(td.keys()) == set(before.keys())
    assert all(torch.equal(td[key], before[key]) for key in before.keys())  # noqa: SIM118


def test_the_page_and_the_example_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where rl4co's trainer writes its checkpoints
    run_code(DOCS / "rl4co.md")
    example = runpy.run_path(str(DOCS.parent / "examples" / "routing_rl4co.py"))
    capsys.readouterr()
    example["main"](epochs=1, steps=1)
    printed = capsys.readouterr().out
    assert all(method in printed for method in ("distinct", "sampling", "multistart_greedy"))
