"""Rounds from an engine that stands in for vLLM: laws, precision, and what travels with requests."""

from __future__ import annotations

import math
import sys
from collections import Counter
from itertools import permutations
from types import SimpleNamespace

import pytest
import torch
from engine_stand_in import Engine, SamplingParams
from problems import chi_square, seeded
from tabular_language_model import END, LENGTH, SYMBOLS, completions, logits

import swor
from swor.integrations.vllm import ENGINE, DistinctCompletions, sample_completions
from swor.integrations.vllm._rows import TREE, Walk, leave_out
from swor.integrations.vllm._trees import Tree, decode, encode
from swor.integrations.vllm.engine import check_engine, check_settings, own_pad_token_id

PROMPT = [7]


@pytest.fixture(autouse=True)
def parameters(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SamplingParams))


def table(scale=1.0):
    return lambda prompt, tokens: scale * logits(tokens, seed=prompt - 7)


def tokens_of(row):
    tokens = row.tolist()
    return tuple(tokens[: tokens.index(END) + 1] if END in tokens else tokens)


def check(sample, laws, tolerance=1e-5):
    """Distinct completions, their log-probabilities, and the relative error of the mass outside."""
    for b, law in enumerate(laws):
        found = int((sample.log_p[b] > -torch.inf).sum())
        drawn = [tokens_of(x) for x in sample.value[b, :found]]
        assert len(set(drawn)) == len(drawn)
        log_p = torch.tensor([law[x] for x in drawn], dtype=torch.float64)
        assert (sample.log_p[b, : len(drawn)] - log_p).abs().max() <= tolerance * log_p.abs().max()
        left = torch.tensor([p for x, p in law.items() if x not in drawn], dtype=torch.float64)
        if len(left) == 0:
            assert sample.log_rest[b] == -torch.inf
        else:
            expected = left.logsumexp(0).item()
            assert abs(sample.log_rest[b].item() - expected) <= tolerance * max(1.0, abs(expected))


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 3}], ids=str)
@pytest.mark.parametrize("steps", [(1,) * 6, (5, 5, 5), (40,)], ids=str)
def test_all_completions_are_drawn_once_with_their_log_probabilities(settings, steps):
    prompts, laws = (
        [[7], [8]],
        [completions(**settings), completions(of=lambda t: logits(t, 1), **settings)],
    )
    drawn = DistinctCompletions(Engine(table()), prompts, max_new_tokens=LENGTH, **settings)
    for n in steps:
        drawn.draw(n, allow_fewer=True)
        check(drawn.sample(), laws)
    drawn.draw(60, allow_fewer=True)
    check(drawn.sample(), laws)
    assert [set(row) for row in drawn.token_ids] == [set(law) for law in laws]
    assert swor.unordered_set(drawn.sample()).weight.isfinite().all()
    with pytest.raises(ValueError, match=r"only \d+ different outcomes"):
        drawn.draw()


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 2}], ids=str)
def test_the_order_has_the_law_of_sampling_without_replacement(k, settings):
    law, draws, length = completions(length=2, **settings), 1500, 2
    sample = sample_completions(
        Engine(table()), [PROMPT] * draws, k=k, max_new_tokens=length, **settings
    )
    observed = Counter(tuple(tokens_of(x) for x in row) for row in sample.value)
    expected = {
        order: swor.log_prob_ordered(torch.tensor([law[x] for x in order]).double()).exp().item()
        for order in permutations(law, k)
    }
    assert chi_square(observed, expected, draws) > 1e-3


def tied(tokens):
    """Three tokens are equal to the smallest of the two largest, in an order that changes."""
    return torch.tensor([0.0, 0.0, 1.0, 0.0]).roll(sum(tokens))


@pytest.mark.parametrize("steps", [(1,) * 3, (3,)], ids=str)
def test_ties_at_the_border_of_top_k_are_all_kept(steps):
    """A token whose mass is partly taken is still one of those that the model's own logits keep."""
    law, draws = completions(top_k=2, of=tied, length=2), 1500
    drawn = DistinctCompletions(
        Engine(lambda prompt, tokens: tied(tokens)), [PROMPT] * draws, max_new_tokens=2, top_k=2
    )
    for n in steps:
        drawn.draw(n)
    sample = drawn.sample()
    check(sample, [law] * draws)
    observed = Counter(tuple(tokens_of(x) for x in row) for row in sample.value)
    expected = {
        order: swor.log_prob_ordered(torch.tensor([law[x] for x in order]).double()).exp().item()
        for order in permutations(law, 3)
    }
    assert chi_square(observed, expected, draws) > 1e-3
    drawn.draw(len(law), allow_fewer=True)
    assert [set(row) for row in drawn.token_ids] == [set(law)] * draws


def test_an_engine_that_leaves_nothing_out_is_noticed():
    """Its log-probabilities are not those of what was left."""
    law = completions()
    drawn = DistinctCompletions(
        Engine(table(), processors=False), [PROMPT] * 50, max_new_tokens=LENGTH
    )
    with pytest.raises((ValueError, KeyError)):
        drawn.draw(len(law), allow_fewer=True)
        check(drawn.sample(), [law] * 50)
        raise KeyError("no repetition in 50 prompts")


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 100.0, 1000.0])
def test_a_model_that_is_nearly_sure_keeps_what_is_left(scale):
    """At the largest scale 1 − p is 0 in any precision, and all but one completion have no mass to see."""
    law = completions(of=lambda tokens: scale * logits(tokens))
    engine = Engine(table(scale))
    drawn = DistinctCompletions(engine, [PROMPT] * 4, max_new_tokens=LENGTH)
    for _ in range(3):
        drawn.draw(4)
        sample = drawn.sample()
        check(sample, [law] * 4)
        weights = swor.unordered_set(sample).weight
        assert weights.isfinite().all() and torch.allclose(weights.sum(-1), torch.ones(4))


def test_the_first_round_is_an_ordinary_request():
    engine = Engine(lambda prompt, tokens: torch.zeros(1000))
    drawn = DistinctCompletions(engine, [[7], [8]], max_new_tokens=4)
    drawn.draw(8)
    assert engine.calls == [[8, 8]] and engine.touched == 0 and drawn.rounds == 1
    assert engine.steps == 4


def test_rounds_need_few_steps_of_a_confident_model():
    """The sequential way needs one walk for every completion."""
    engine, k = Engine(table(2.0)), 16
    drawn = DistinctCompletions(engine, [PROMPT] * 8, max_new_tokens=LENGTH)
    drawn.draw(k)
    assert 1 < drawn.rounds < k / 2 and engine.steps < k * LENGTH / 1.5
    assert sum(engine.calls[0]) == 8 * k and sum(engine.calls[-1]) < 8 * k
    assert drawn.tokens >= sum(len(x) for row in drawn.token_ids for x in row)


def test_prompts_end_in_different_rounds():
    """The second prompt needs no further round, and its completions are those of the first."""
    engine = Engine(lambda prompt, tokens: (8.0 if prompt == 7 else 0.0) * logits(tokens))
    drawn = DistinctCompletions(engine, [[7], [8]], max_new_tokens=LENGTH)
    drawn.draw(3)
    rounds = [n for n in engine.calls if max(n) > 1 or len(n) < 3]
    assert rounds[0] == [3, 3] and len(rounds) > 1


def tree_of(draws):
    tree = Tree()
    tree.add(draws)
    return tree


def test_a_tree_survives_its_travel():
    tree = tree_of([((1, 2, 0), (-0.5, -1.0, -1.5)), ((1, 3), (-0.5, -2.0)), ((0,), (-3.0,))])
    received = decode(encode(tree))
    for path in [(), (1,), (1, 2), (1, 2, 0), (1, 3), (0,)]:
        node, sent = tree.root, 0
        for token in path:
            node, sent = node.children[token], received.child(sent, token)
        assert received.log_left[sent] == pytest.approx(node.log_left, abs=1e-6)
        expected = {} if node.log_left == -math.inf else node.children
        assert [received.token[i] for i in received.children(sent)] == list(expected)
    assert received.child(0, 2) is None
    with pytest.raises(ValueError, match="same version of swor"):
        decode(encode(tree)[:-8])


def test_improbable_completions_do_not_travel():
    tree = tree_of([((1, 2, 0), (-9.0, -9.0, -30.0)), ((1, 3), (-9.0, -0.1)), ((0,), (-3.0,))])
    received = decode(encode(tree))
    assert received.child(received.child(0, 1), 2) is None and received.child(0, 0) is not None


def test_what_is_left_is_a_sum_of_positive_terms():
    """Draws beside each other: two requests pass the same node, which knows of both."""
    half, third = math.log(0.5), math.log(1 / 3)
    tree = tree_of([((0,), (half,)), ((1, 0), (math.log(0.3), third)), ((0,), (half,))])
    assert math.exp(tree.log_rest) == pytest.approx(0.2 + 0.3 * 2 / 3, abs=1e-12)
    again = math.log(0.3 * 2 / 3 / 0.4)  # the mass that is left at (1,), of what is left in all
    assert tree.add([((1, 1), (again, math.log(0.5)))]) == [pytest.approx(math.log(0.3 / 3))]
    assert math.exp(tree.log_rest) == pytest.approx(0.2 + 0.1, abs=1e-12)


def test_a_measurement_replaces_a_difference_that_lost_its_digits():
    tree = tree_of([((1, 0), (0.0, -0.2))])  # the first token has a probability of 1 − 1e-12
    tree.add([((1, 2), (0.0, 0.0))])  # and all that is left, after it, is the second
    assert tree.log_rest == -math.inf and tree.imprecise() == [(), (1,)]
    assert sorted(tree.taken((1,))) == [0, 2]
    tree.set_new((), math.log(1e-12))
    tree.set_new((1,), -math.inf)
    assert tree.imprecise() == [] and tree.log_rest == pytest.approx(math.log(1e-12))


def test_a_draw_that_finds_nothing_repeats_a_completion():
    """The caller's rounding may send a draw where nothing is left: its logits stay as they were."""
    tree = tree_of([((0,), (-0.1,)), ((1,), (-2.4,))])
    tree.root.children = {0: tree.root.children[0], 1: tree.root.children[1]}
    walk = Walk(decode(encode(tree)), 1.0, 0)
    row = torch.tensor([[1.0, 2.0]])
    assert torch.equal(leave_out(row, [walk]), row)
    assert leave_out(torch.tensor([[1.0, 2.0, 0.0]]), [walk])[0].isinf().tolist() == [
        True,
        True,
        False,
    ]


def test_requests_carry_strings_numbers_and_lists():
    """All that the server of an engine accepts."""
    seen = []

    class Watched(Engine):
        def generate(self, prompts, parameters, use_tqdm=True):
            seen.extend(p.extra_args for p in parameters)
            return super().generate(prompts, parameters, use_tqdm)

    DistinctCompletions(Watched(table(30.0)), [PROMPT] * 3, max_new_tokens=LENGTH).draw(5)
    assert None in seen and any(TREE in x for x in seen if x)
    for value in [v for x in seen if x for v in x.values()]:
        items = value if isinstance(value, list) else [value]
        assert all(type(item) in (str, int, float) for item in items)


def llm(
    *, processors=tuple(ENGINE["logits_processors"]), logprobs="processed_logprobs", **settings
):
    speculative = settings.pop("speculative", None)
    model = SimpleNamespace(
        logits_processors=processors, logprobs_mode=logprobs, hf_config=SimpleNamespace(**settings)
    )
    config = SimpleNamespace(model_config=model, speculative_config=speculative)
    return SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=config))


def test_engines_that_would_spoil_the_law_are_refused():
    check_engine(llm())
    with pytest.raises(ValueError, match="ENGINE"):
        check_engine(llm(processors=None))
    with pytest.raises(ValueError, match="returns raw_logprobs"):
        check_engine(llm(logprobs="raw_logprobs"))
    with pytest.raises(ValueError, match="speculative decoding"):
        check_engine(llm(speculative=object()))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"prompts": []}, r"prompts is \[\]"),
        ({"prompts": "one text"}, "expected a list"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"temperature": 0.0}, "only one greedy completion"),
        ({"temperature": 0.001}, r"expected at least 0\.01"),
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
    with pytest.raises(ValueError, match="no outcome yet"):
        completions.sample()


def test_the_generator_decides(monkeypatch):
    seeds = []

    class Watched(Engine):
        def generate(self, prompts, parameters, use_tqdm=True):
            seeds.append([p.seed for p in parameters])
            return super().generate(prompts, parameters, use_tqdm)

    for generator in (seeded(1), seeded(1), seeded(2), None):
        sample_completions(
            Watched(table(0.0)), [[7], [8]], k=1, max_new_tokens=1, generator=generator
        )
    assert seeds[0] == seeds[1] != seeds[2] and seeds[3] == [None, None]
