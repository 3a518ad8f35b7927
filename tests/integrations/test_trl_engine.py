"""The engine of the TRL trainer, with a stand-in for vLLM."""

from __future__ import annotations

import copy
import sys
from collections import Counter
from itertools import combinations, permutations
from types import ModuleType, SimpleNamespace

import pytest
import server_stand_in
import torch
from problems import log_probabilities, seeded
from tiny_trainer import trainer

import swor
from swor.integrations import vllm as swor_vllm
from swor.integrations.trl import _vllm as engines
from swor.types import Sample, Scheme

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    "given, message",
    [
        ({"top_p": 0.9}, "top_p is 0.9 and use_vllm True; expected 1.0"),
        ({"generation_kwargs": {"seed": 1}}, "generation_kwargs is .* expected None"),
    ],
)
def test_settings_that_the_engine_cannot_honour(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, use_vllm=True, **{"vllm_mode": "colocate"} | given)


def test_servers_of_older_versions_of_trl(monkeypatch, tmp_path):
    monkeypatch.setattr(engines, "has_servers_of_vllm", lambda: False)
    with pytest.raises(
        ValueError, match=r"vllm_mode is 'server'; expected 'colocate' .* trl 1\.16"
    ):
        trainer(tmp_path, use_vllm=True, vllm_mode="server")


def a_sample(prompts, k, **_):
    value = torch.arange(len(prompts) * k * 2).view(len(prompts), k, 2)
    log_p = torch.full((len(prompts), k), 0.1).log()
    return Sample(
        value, log_p, (1 - 0.1 * k) * torch.ones(len(prompts)), scheme=Scheme.WITHOUT_REPLACEMENT
    )


def test_every_group_of_equal_prompts_gets_distinct_completions(monkeypatch):
    """TRL asks for one completion of every prompt; settings, and methods of vLLM, pass through."""
    made, asked = {}, {}

    class LLM:
        def __init__(self, model, **options):
            made.update(options, model=model)

        def sleep(self, level):
            return f"asleep at {level}"

    def draw(llm, prompts, **options):
        asked.update(options, prompts=prompts)
        return a_sample(prompts, options["k"])

    module = ModuleType("vllm")
    module.LLM = LLM
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(swor_vllm, "sample_completions", draw)
    engine = engines.DistinctEngine("a model", logprobs_mode="processed_logprobs", seed=3)
    assert made == {"model": "a model", "seed": 3} | swor_vllm.ENGINE
    assert engine.sleep(2) == "asleep at 2"
    engine.k, engine.stop_token_ids = 2, [7]
    prompts = [{"prompt_token_ids": ids} for ids in ([1, 2], [1, 2], [3], [3])]
    settings = SimpleNamespace(max_tokens=2, temperature=0.7, top_k=0)
    outputs = engine.generate(prompts, sampling_params=settings, use_tqdm=False)
    assert asked["prompts"] == [[1, 2], [3]] and asked["k"] == 2 and asked["top_k"] is None
    assert asked["temperature"] == 0.7 and asked["stop_token_ids"] == [7]
    assert [o.prompt_token_ids for o in outputs] == [[1, 2], [1, 2], [3], [3]]
    assert [o.outputs[0].token_ids for o in outputs] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_an_engine_can_be_copied():
    engine = engines.Drawing(SimpleNamespace(sleep=3), None)
    assert copy.copy(engine).sleep == 3


def test_ranks_of_one_engine_take_their_part(monkeypatch):
    sample = a_sample([1, 2, 3, 4], 2)
    assert engines.own_part(sample, 4, "cpu").value.shape == (4, 2, 2)
    monkeypatch.setattr(
        torch.distributed, "get_rank", lambda: 3
    )  # of the second engine of two ranks
    assert torch.equal(engines.own_part(sample, 2, "cpu").value, sample.value[2:])
    with pytest.raises(RuntimeError, match="has drawn nothing"):
        engines.shared_sample(SimpleNamespace(mode="colocate"), SimpleNamespace(sample=None))


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A trainer with a server; the transfer of weights and the server itself have a stand-in."""
    if not engines.has_servers_of_vllm():
        pytest.skip("this version of TRL has servers of its own")
    server_stand_in.install(monkeypatch)
    return trainer(tmp_path, use_vllm=True, vllm_mode="server", temperature=0.8)


def test_a_server_draws_from_the_trained_weights(served):
    """TRL sends the weights after every step, and the server's log-probabilities are the policy's."""
    served.train()
    client = served.vllm_generation.vllm_client
    assert isinstance(client, engines.DistinctClient) and client.transfers == 4
    logged = [entry for entry in served.state.log_history if "reward" in entry]
    assert len(logged) == 4 and all(0 < entry["swor/mass_covered"] <= 1 for entry in logged)
    served.model.train()
    batch = served._generate_and_score_completions([{"prompt": "a b"}] * 4 + [{"prompt": "c"}] * 4)
    sample = served._sample
    assert client.transfers == 5
    assert torch.allclose(batch["old_logps"], sample.log_p.flatten().float(), atol=1e-5)
    assert all(len(set(map(tuple, group))) == 4 for group in sample.value.tolist())
    total = sample.log_p.exp().sum(-1) + sample.log_rest.exp()
    assert torch.allclose(total, torch.ones_like(total), atol=1e-5)


def test_a_server_has_the_law_of_the_model(served):
    """Pairs of completions of one token, by a chi-square test."""
    from problems import chi_square

    served.vllm_generation.max_completion_length, number = 1, 800
    served.model.eval()
    served.num_generations_eval = 2
    ids = served.processing_class("a b")["input_ids"]
    served._generate_single_turn([ids] * (2 * number), None, {})
    with torch.no_grad():
        log_p = (served.model(torch.tensor([ids])).logits[0, -1].double() / 0.8).log_softmax(-1)
    pairs = list(permutations(range(len(log_p)), 2))
    law = dict(
        zip(pairs, swor.log_prob_ordered(log_p[torch.tensor(pairs)]).exp().tolist(), strict=True)
    )
    observed = Counter(tuple(row) for row in served._sample.value[..., 0].tolist())
    assert chi_square(observed, law, number) > 1e-3


def test_the_engine_of_trl_is_replaced_while_the_trainer_is_made_only():
    from trl.generation import vllm_generation as maker

    before = getattr(maker, "LLM", None)
    with engines.distinct_engines(True):
        assert maker.LLM is engines.DistinctEngine
    assert maker.LLM is before
    with engines.distinct_engines(False):
        assert maker.LLM is before


def expectation(log_q, log_w, log_rest, cost):
    """Of the estimate of E[f], over all sets drawn from q, with weights of other log-probabilities."""
    total = torch.zeros((), dtype=log_q.dtype)
    for chosen in combinations(range(len(log_q)), 3):
        chosen = list(chosen)
        others = [i for i in range(len(log_q)) if i not in chosen]
        p = swor.log_prob_set(log_q[chosen], log_q[others].logsumexp(-1)).exp()
        rest = log_w[others].logsumexp(-1) if log_rest else None
        sample = Sample(cost[chosen], log_w[chosen], rest, scheme=Scheme.WITHOUT_REPLACEMENT)
        total = total + p * swor.unordered_set(sample).mean(cost[chosen])
    return total


def test_what_the_difference_of_engine_and_trainer_does():
    """Weights of the engine have the mean of the engine's model exactly, whatever the trainer's model is.

    Those of the trainer are off the mean of its own model by as much as the two models differ.
    """
    log_q = log_probabilities(6)
    noise = 1e-3 * torch.randn(6, generator=seeded(), dtype=torch.float64)
    log_p = (log_q + noise).log_softmax(-1)
    cost = torch.randn(6, generator=seeded(), dtype=torch.float64)
    of_engine, of_trainer = ((x.exp() * cost).sum() for x in (log_q, log_p))
    own = expectation(log_q, log_q, True, cost)
    assert abs(own - of_engine) < 1e-12
    other = expectation(log_q, log_p, True, cost)
    assert 1e-12 < abs(other - of_trainer) < 5e-3 and 1e-12 < abs(of_engine - of_trainer) < 5e-3


def test_the_mass_outside_is_lost_with_the_probabilities_of_the_trainer():
    """If the policy is sure, 1 − Σp in single precision is rounding; the engine's mass outside is a sum."""
    exact = torch.tensor([8.0, 0.0, -1.0, -13.0, -13.5], dtype=torch.float64).log_softmax(-1)
    log_p, cost = exact[:3].float(), torch.tensor([0.0, 1.0, 5.0])
    rest = exact[3:].logsumexp(-1)
    of_rounding = torch.log1p(-log_p.exp().sum())
    assert not abs(of_rounding - rest) < 0.1  # the trainer's: −inf, NaN, or off by far
    index = torch.arange(3)
    good = Sample(index, log_p, rest.float(), scheme=Scheme.WITHOUT_REPLACEMENT)
    expected = Sample(index, exact[:3], rest, scheme=Scheme.WITHOUT_REPLACEMENT)
    a, b = (swor.unordered_set(s).mean(cost.to(s.log_p.dtype)) for s in (good, expected))
    assert a.item() == pytest.approx(b.item(), rel=1e-5)
