"""Completions that are items of a catalogue: their law, their log-probabilities, their gradient."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations

import pytest
import torch
from problems import chi_square, seeded
from tiny_models import DRAWS, LEFT, LENGTH, PAD, PROMPTS, ends, many, masks, rows, tiny
from transformers import (
    LogitsProcessorList,
    PrefixConstrainedLogitsProcessor,
    TemperatureLogitsWarper,
)

import swor
from swor.integrations.transformers import (
    Catalogue,
    ancestral_completions,
    beam_completions,
    completion_log_probs,
    sample_completions,
)

NAMES = ["gpt2", "llama", "t5"]
ITEMS = [[1], [1, 2], [1, 2, 3], [2, 2], [2, 4, 1], [3, 1, 1], [4]]  # some begin like others


def logits_after(name, which, prefix):
    """Of a plain pass without cache and padding, with gradient."""
    ids, mask = masks(name)
    prompt = ids[which][mask[which].bool()].tolist()
    if name == "t5":
        given = {"decoder_input_ids": torch.tensor([[PAD, *prefix]])}
        given |= {"input_ids": torch.tensor([prompt])}
    else:
        given = {"input_ids": torch.tensor([prompt + prefix])}
    return tiny(name)(**given, use_cache=False).logits[0, -1]


def choices(prefix, items=ITEMS):
    """The tokens that may follow a prefix; 0 ends an item."""
    longer = {x[len(prefix)] for x in items if x[: len(prefix)] == prefix and len(x) > len(prefix)}
    return sorted(longer | ({0} if prefix in items else set()))


def restricted(name, which, items=ITEMS, temperature=1.0):
    """The log-probability of every item under the restricted distribution, with gradient, (items,)."""
    totals = []
    for item in items:
        total = torch.zeros((), dtype=torch.float64)
        for t, symbol in enumerate([*item, 0][:LENGTH]):
            allowed = choices(item[:t], items)
            log_p = (logits_after(name, which, item[:t])[allowed] / temperature).log_softmax(-1)
            total = total + log_p[allowed.index(symbol)]
        totals.append(total)
    return torch.stack(totals)


@cache
def law(name, which):
    with torch.no_grad():
        return restricted(name, which)


def as_values(items=ITEMS):
    """Items as completions, (items, LENGTH)."""
    ended = [[*item, 0][:LENGTH] for item in items]
    return torch.tensor([x + [PAD] * (LENGTH - len(x)) for x in ended])


@pytest.mark.parametrize("name", NAMES)
def test_sets_of_items_have_their_law(name):
    catalogue, (ids, mask) = Catalogue(ITEMS), many(name, 0)
    with torch.no_grad():
        sample = sample_completions(
            tiny(name), ids, mask, k=2, max_new_tokens=LENGTH, catalogue=catalogue,
            generator=seeded(),
        )  # fmt: skip
    observed = Counter(frozenset(x) for x in catalogue.index(sample.value).tolist())
    pairs = list(combinations(range(len(ITEMS)), 2))
    chances = swor.log_prob_set(law(name, 0)[torch.tensor(pairs)]).exp().tolist()
    assert (
        chi_square(observed, dict(zip(map(frozenset, pairs), chances, strict=True)), DRAWS) > 1e-3
    )
    assert abs(law(name, 0).exp().sum() - 1) < 1e-12


@pytest.mark.parametrize("draw", [sample_completions, ancestral_completions, beam_completions])
@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities_are_those_of_the_restricted_distribution(name, draw):
    catalogue, (ids, mask) = Catalogue(ITEMS), masks(name)
    sample = draw(tiny(name), ids, mask, k=4, max_new_tokens=catalogue.length, catalogue=catalogue)
    scored = completion_log_probs(
        tiny(name), ids, sample.value, attention_mask=mask, catalogue=catalogue
    )
    for which in (0, 1):
        items = catalogue.index(sample.value[which])
        assert rows(sample.value[which]) == rows(as_values()[items])
        for log_p in (sample.log_p, scored):
            assert torch.allclose(log_p[which], law(name, which)[items], rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_the_restricted_distribution_are_unbiased(name, chunk):
    """Every set of two items, weighted by its probability: the gradient of plain passes."""
    ids, mask = (x[:1] for x in masks(name))
    weight = tiny(name).lm_head.weight
    cost = torch.randn(len(ITEMS), generator=seeded(), dtype=torch.float64)
    exact = torch.autograd.grad((restricted(name, 0).exp() * cost).sum(), weight)[0]
    given = {"attention_mask": mask, "chunk": chunk}
    values = as_values().unsqueeze(0)
    ours = completion_log_probs(tiny(name), ids, values, catalogue=Catalogue(ITEMS), **given)[0]
    free = completion_log_probs(tiny(name), ids, values, **given)[0]
    pairs = torch.combinations(torch.arange(len(ITEMS)), 2)
    chance = swor.log_prob_set(ours[pairs]).exp().detach()

    def mean(log_p):
        """Of sets drawn with the catalogue, differentiating these log-probabilities."""
        sample = swor.Sample(as_values()[pairs], ours.detach()[pairs], scheme="without_replacement")
        weights = swor.unordered_set(sample)
        slope = (weights.weight * (cost[pairs] - weights.baseline(cost[pairs]))).detach()
        total = (chance * (slope * log_p[pairs]).sum(-1)).sum()
        return torch.autograd.grad(total, weight)[0]

    tolerance = 1e-10 if name == "gpt2" else 1e-6  # the others normalise in float32
    loss = swor.unordered_set(
        swor.Sample(as_values()[pairs], ours[pairs], scheme="without_replacement")
    ).loss(cost[pairs])
    (found,) = torch.autograd.grad((chance * loss).sum(), weight, retain_graph=True)
    assert torch.allclose(found, exact, rtol=0, atol=tolerance)
    biased = mean(free)  # the common mistake: draw with a mask, score without
    assert torch.allclose(mean(ours), exact, rtol=0, atol=tolerance)
    assert (biased - exact).norm() > 0.05 * exact.norm()


def test_the_whole_catalogue():
    catalogue, (ids, mask) = Catalogue(ITEMS), masks("gpt2")
    given = {"max_new_tokens": LENGTH, "catalogue": catalogue}
    sample = sample_completions(tiny("gpt2"), ids, mask, k=len(ITEMS), **given)
    assert catalogue.index(sample.value).sort(-1).values.tolist() == [list(range(len(ITEMS)))] * 2
    assert (sample.log_rest == -torch.inf).all()
    with pytest.raises(ValueError, match=f"only {len(ITEMS)} sequences of positive probability"):
        sample_completions(tiny("gpt2"), ids, mask, k=len(ITEMS) + 1, **given)


def test_what_is_no_item_is_impossible():
    value = torch.tensor([[[1, 0, PAD], [1, 3, 0], [3, 1, 0], [4, 4, 4]]])
    given = {"attention_mask": LEFT[:1], "catalogue": Catalogue(ITEMS)}
    log_p = completion_log_probs(tiny("gpt2"), PROMPTS[:1], value, **given)[0]
    assert torch.isfinite(log_p).tolist() == [True, False, False, False]


def test_items_of_one_length_need_no_end():
    items = [[1, 2], [1, 0], [3, 3]]
    sample = sample_completions(
        tiny("gpt2"),
        PROMPTS,
        LEFT,
        k=3,
        max_new_tokens=2,
        eos_token_id=[],
        catalogue=Catalogue(items),
    )
    assert [sorted(rows(x)) for x in sample.value] == [sorted(map(tuple, items))] * 2


def test_of_several_ends_only_the_first_ends_an_item():
    """Otherwise one item would be two completions."""
    first, second = ends(tiny("llama_two_ends"))
    catalogue = Catalogue([[1], [1, 2], [2]])
    sample = sample_completions(
        tiny("llama_two_ends"), PROMPTS, LEFT, k=3, max_new_tokens=4, catalogue=catalogue
    )
    assert (sample.log_rest == -torch.inf).all() and not (sample.value == second).any()
    assert (sample.value == first).any(-1).all()


def prefix_function(items_of):
    """As `generate` takes it; ``items_of`` has the items of every prompt."""

    def allowed(prompt, tokens):
        return choices(tokens[PROMPTS.shape[1] :].tolist(), items_of[prompt])

    return allowed


def test_prefix_constraints_of_transformers_know_their_prompt():
    """Also when completions have ended and no longer have a row."""
    items_of = [ITEMS, [[1], [2, 2], [2, 3, 3], [4, 1]]]
    constraint = PrefixConstrainedLogitsProcessor(prefix_function(items_of), num_beams=4)
    processor = LogitsProcessorList([constraint, TemperatureLogitsWarper(0.5)])
    given = {"logits_processor": processor}
    sample = sample_completions(tiny("gpt2"), PROMPTS, LEFT, k=4, max_new_tokens=LENGTH, **given)
    scored = completion_log_probs(tiny("gpt2"), PROMPTS, sample.value, attention_mask=LEFT, **given)
    for which, items in enumerate(items_of):
        exact = restricted("gpt2", which, items, temperature=0.5)
        found = Catalogue(items).index(sample.value[which])
        assert len(set(found.tolist())) == 4 and (found >= 0).all()
        for log_p in (sample.log_p, scored):
            assert torch.allclose(log_p[which], exact[found], rtol=0, atol=1e-12)


def test_a_catalogue_comes_before_the_processor():
    given = {"catalogue": Catalogue(ITEMS), "logits_processor": TemperatureLogitsWarper(0.5)}
    values = as_values().unsqueeze(0)
    log_p = completion_log_probs(
        tiny("gpt2"), PROMPTS[:1], values, attention_mask=LEFT[:1], **given
    )
    assert torch.allclose(log_p[0], restricted("gpt2", 0, temperature=0.5), rtol=0, atol=1e-12)


def test_index_is_the_longest_item_that_a_completion_begins_with():
    value = torch.tensor([[1, 0, 4], [1, 2, 0], [1, 2, 3], [3, 1, 0], [9, 9, 9]])
    assert Catalogue(ITEMS).index(value).tolist() == [0, 1, 2, -1, -1]
    assert Catalogue(ITEMS).index(value.view(5, 1, 3)).shape == (5, 1)


@pytest.mark.parametrize(
    "items, message",
    [
        ([], "is empty or has an empty item"),
        ([[1], []], "is empty or has an empty item"),
        ([[1], [2, -1]], "has a negative token"),
        ([[1], [2], [1]], r"items 0 and 2 are both \[1\]; expected different items"),
    ],
)
def test_items_that_make_no_catalogue(items, message):
    with pytest.raises(ValueError, match=message):
        Catalogue(items)


@pytest.mark.parametrize(
    "items, given, message",
    [
        ([[1, 77]], {}, "an item has the token 77, but the model has 5 tokens"),
        ([[1, 2, 3]], {"max_new_tokens": 2}, "longest item of the catalogue has 3 tokens"),
        ([[1, 2], [3]], {"eos_token_id": []}, r"items have \[1, 2\] tokens, and nothing ends"),
        ([[1, 0]], {}, "an item has the token 0, which ends completions"),
    ],
)
def test_catalogues_that_do_not_fit_the_model(items, given, message):
    options = {"k": 1, "max_new_tokens": LENGTH, "catalogue": Catalogue(items)} | given
    with pytest.raises(ValueError, match=message):
        sample_completions(tiny("gpt2"), PROMPTS, LEFT, **options)


def test_padding_of_any_kind_is_no_token():
    catalogue = Catalogue([[5, 1], [5, 9], [7], [7, 0]])
    value = torch.tensor([[5, 1, -1], [7, -1, -1], [-1, 5, 1], [5, -100, 1], [7, 0, 50]])
    assert catalogue.index(value).tolist() == [0, 2, -1, -1, 3]


def test_all_items_of_a_small_catalogue_are_drawn():
    model, (ids, mask) = tiny("gpt2"), masks("gpt2")
    catalogue = Catalogue(ITEMS[:3])
    options = {"k": 5, "max_new_tokens": LENGTH, "catalogue": catalogue}
    with pytest.raises(ValueError, match="allow_fewer=True"):
        sample_completions(model, ids, mask, **options)
    sample = sample_completions(model, ids, mask, **options, allow_fewer=True)
    assert (sample.log_p[:, 3:] == -torch.inf).all() and (sample.log_rest == -torch.inf).all()
    assert (catalogue.index(sample.value[:, :3]).sort(-1).values == torch.arange(3)).all()
    cost = torch.rand(len(ids), 5, dtype=sample.log_p.dtype)
    exact = (sample.log_p.exp()[:, :3] * cost[:, :3]).sum(-1)
    loss = swor.unordered_set(sample).loss(cost)
    torch.testing.assert_close(loss, exact)
    (found,) = torch.autograd.grad(loss.sum(), model.get_output_embeddings().weight)
    assert found.isfinite().all() and found.abs().sum() > 0


def test_a_beam_search_may_find_fewer_items_than_it_has_beams() -> None:
    model, (ids, mask) = tiny("gpt2"), masks("gpt2")
    catalogue = Catalogue(ITEMS[:3])
    options = {"k": 5, "max_new_tokens": LENGTH, "catalogue": catalogue}
    with pytest.raises(ValueError, match="allow_fewer=True"):
        beam_completions(model, ids, mask, **options)
    found = beam_completions(model, ids, mask, **options, allow_fewer=True)
    assert (found.log_p[:, 3:] == -torch.inf).all() and found.log_p[:, :3].isfinite().all()
    assert torch.allclose(found.log_p.exp().sum(-1), torch.ones(1, dtype=found.log_p.dtype))
    weights = swor.risk(found)
    assert (weights.weight[:, 3:] == 0).all() and weights.loss(
        torch.ones_like(found.log_p)
    ).isfinite().all()


def test_items_that_are_no_lists_of_tokens() -> None:
    for items in ([1, 2], ["ab"]):
        with pytest.raises(TypeError, match="items are not lists of token ids; expected a list"):
            Catalogue(items)
    with pytest.raises(TypeError, match="value is a list; expected a tensor"):
        Catalogue(ITEMS).index([[1, 2]])
    ids, mask = masks("gpt2")
    with pytest.raises(TypeError, match=r"catalogue is a list; expected a Catalogue.*\(items\)"):
        sample_completions(tiny("gpt2"), ids, mask, k=1, max_new_tokens=LENGTH, catalogue=ITEMS)
