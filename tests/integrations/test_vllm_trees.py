"""The trees beside a vLLM engine, driven as an engine would drive them; needs no vLLM."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations
from types import SimpleNamespace

import pytest
import torch
from problems import chi_square, seeded
from tabular_language_model import END, LENGTH, SYMBOLS, completions, logits

import swor
from swor.integrations.vllm import ENGINE, DistinctCompletions
from swor.integrations.vllm._trees import Trees
from swor.integrations.vllm.engine import check_engine, check_settings, own_pad_token_id

SETTINGS = {"tree": "a", "temperature": 1.0, "top_k": None}


def generate(request, generator, repeat=0, beyond=False):
    """The tokens of a request; an engine may repeat a step, or make one too many."""
    tokens = []
    while len(tokens) < LENGTH and tokens[-1:] != [END]:
        for _ in range(1 + repeat):
            row = request.process(len(tokens), tokens[-1] if tokens else 0, logits(tokens))
        tokens.append(int(row.softmax(-1).multinomial(1, generator=generator)))
    if beyond:
        request.process(len(tokens), tokens[-1], logits(tokens))
    return tokens


def draw(trees, k, generator, settings=SETTINGS, **engine):
    drawn = []
    for i in range(k):
        tokens = generate(trees.request({**settings, "draw": i}), generator, **engine)
        drawn.append((tuple(tokens), trees.finish(settings["tree"], i, tokens)))
    return drawn


@pytest.mark.parametrize("engine", [{}, {"repeat": 2}, {"beyond": True}], ids=str)
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 3}], ids=str)
def test_all_completions_are_drawn_once(engine, settings):
    law = completions(**settings)
    drawn = draw(Trees(), len(law), seeded(), SETTINGS | settings, **engine)
    assert {tokens for tokens, _ in drawn} == set(law)
    left = dict(law)
    for tokens, completion in drawn:
        assert abs(completion.log_p - law[tokens]) <= 1e-5
        del left[tokens]
        rest = math.fsum(math.exp(p) for p in left.values())
        assert (
            completion.log_rest == -math.inf
            if not left
            else (abs(math.expm1(completion.log_rest - math.log(rest))) <= 1e-5)
        )


def test_the_order_has_the_law_of_sampling_without_replacement():
    law, generator, draws = completions(), seeded(), 3000
    observed = Counter(tuple(x for x, _ in draw(Trees(), 2, generator)) for _ in range(draws))
    expected = {
        pair: swor.log_prob_ordered(torch.tensor([law[x] for x in pair]).double()).exp().item()
        for pair in permutations(law, 2)
    }
    assert chi_square(observed, expected, draws) > 1e-3


def test_a_model_that_is_nearly_sure_keeps_what_is_left():
    """The others have 1e-13 of the mass, which 1 − p in single precision would lose."""
    trees = Trees()
    sure = torch.tensor([0.0, -30.0, -31.0, -32.0])
    left = sure.double().log_softmax(-1)
    request = trees.request({**SETTINGS, "draw": 0})
    request.process(0, 0, sure)
    completion = trees.finish("a", 0, [0])
    assert abs(math.expm1(completion.log_rest - left[1:].logsumexp(0).item())) <= 1e-5
    row = trees.request({**SETTINGS, "draw": 1}).process(0, 0, sure)
    assert row[0] == -torch.inf and torch.allclose(row[1:], left[1:].float())


def test_a_preempted_request_goes_on_where_it_was():
    trees = Trees()
    settings = {**SETTINGS, "draw": 0}
    trees.request(settings).process(0, 0, logits([]))
    trees.request(settings).process(1, 2, logits([2]))
    assert trees.request(settings) is trees.request(settings)
    trees.request(settings).process(1, 2, logits([2]))  # after it is resumed
    completion = trees.finish("a", 0, [2, 0])
    assert abs(completion.log_p - completions()[(2, 0)]) <= 1e-5


def test_trees_are_apart_and_can_be_forgotten():
    trees = Trees()
    law = completions()
    for name in ("a", "b"):
        drawn = draw(trees, len(law), seeded(), SETTINGS | {"tree": name})
        assert {tokens for tokens, _ in drawn} == set(law)
    trees.request({**SETTINGS, "draw": 99})
    trees.forget(["a", "unknown"])
    assert list(trees.roots) == ["b"] and not trees.requests


def test_a_worker_that_sees_no_logits_says_so():
    trees = Trees()
    assert trees.finish("a", 0, [1]) is None
    trees.request({**SETTINGS, "draw": 0})
    assert trees.finish("a", 0, [1]) is None


def test_several_tokens_at_a_time_are_refused():
    request = Trees().request({**SETTINGS, "draw": 0})
    request.process(0, 0, logits([]))
    with pytest.raises(RuntimeError, match="speculative decoding"):
        request.process(2, 1, logits([1, 1]))


def test_a_token_that_is_used_up_is_refused():
    trees = Trees()
    draw(trees, len(completions()) - 1, seeded())
    request = trees.request({**SETTINGS, "draw": 99})
    row = request.process(0, 0, logits([]))
    with pytest.raises(RuntimeError, match="drawn before"):
        request.process(1, int((row == -torch.inf).long().argmax()), logits([]))


def llm(*, processors=tuple(ENGINE["logits_processors"]), speculative=None, replicas=1, **tokens):
    model = SimpleNamespace(logits_processors=processors, hf_config=SimpleNamespace(**tokens))
    parallel = SimpleNamespace(
        worker_extension_cls=ENGINE["worker_extension_cls"], data_parallel_size=replicas
    )
    config = SimpleNamespace(
        model_config=model, parallel_config=parallel, speculative_config=speculative
    )
    return SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=config))


def test_engines_that_would_spoil_the_law_are_refused():
    check_engine(llm())
    with pytest.raises(ValueError, match="ENGINE"):
        check_engine(llm(processors=None))
    with pytest.raises(ValueError, match="speculative decoding"):
        check_engine(llm(speculative=object()))
    with pytest.raises(ValueError, match="2 replicas"):
        check_engine(llm(replicas=2))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"prompts": []}, r"prompts is \[\]"),
        ({"prompts": "one text"}, "expected a list"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"temperature": 0.0}, "only one greedy completion"),
        ({"top_k": 0}, "top_k is 0"),
    ],
)
def test_settings_make_sense(given, message):
    right = {"prompts": [[1]], "max_new_tokens": 4, "temperature": 1.0, "top_k": None}
    check_settings(**right)
    with pytest.raises(ValueError, match=message):
        check_settings(**(right | given))


def test_padding_is_the_models_own():
    assert own_pad_token_id(llm(pad_token_id=7, eos_token_id=2)) == 7
    assert own_pad_token_id(llm(pad_token_id=None, eos_token_id=[2, 3])) == 2
    assert own_pad_token_id(llm()) == 0


def test_there_is_no_sample_before_a_draw():
    completions = DistinctCompletions(llm(), [[1], [2, 3]], max_new_tokens=SYMBOLS)
    assert completions.k == 0 and completions.log_rest.shape == (2,)
    with pytest.raises(ValueError, match="no completion yet"):
        completions.sample()
