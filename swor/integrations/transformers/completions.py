"""Completions of prompts by a Hugging Face model: distinct, independent, or the likeliest.

Completions are drawn without dropout, whatever mode the model is in, from its own distribution
(temperature 1, all tokens) unless a logits processor makes it another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swor.checks import check_k
from swor.integrations.transformers.catalogue import Catalogue
from swor.integrations.transformers.head import Head
from swor.integrations.transformers.networks import evaluating, network
from swor.integrations.transformers.policy import CompletionPolicy
from swor.integrations.transformers.processors import Processor
from swor.integrations.transformers.prompts import (
    Prompts,
    check_max_new_tokens,
    check_prompts,
    tokens_of,
    vocabulary,
)
from swor.integrations.transformers.scoring import Scorer, check_value
from swor.integrations.transformers.shards import ranks_of
from swor.integrations.transformers.wrappers import underlying
from swor.samplers.sequence import ancestral_sample, beam_search, stochastic_beam_search
from swor.types import Sample

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def sample_completions(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    k: int,
    max_new_tokens: int,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    logits_processor: Processor | None = None,
    catalogue: Catalogue | None = None,
    chunk: int | None = None,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""$k$ different completions of every prompt, a sample without replacement from the model.

    A stochastic beam search (:func:`swor.stochastic_beam_search`) with the model's cache of keys
    and values: every prompt is encoded once, and completions that have ended stay in the race at no
    cost. For :func:`swor.unordered_set` and the other rules. Under ``torch.no_grad()`` the
    log-probabilities are those of the search; otherwise they are found anew, with gradient, in
    one pass, as by :func:`completion_log_probs`.

    A model with adapters (PEFT) is sampled with them. If the weights are spread over ranks (FSDP,
    DeepSpeed ZeRO-3), all ranks call this function together, each with prompts of its own; those whose
    completions end first keep calling the model until the others have ended.

    Args:
        model: a decoder-only or encoder-decoder model, which may be wrapped.
        input_ids: prompts, (batch, tokens), padded on the left if the model is decoder-only.
        attention_mask: (batch, tokens), 0 for padding; None if there is none.
        k: the number of completions per prompt.
        max_new_tokens: the largest number of tokens of a completion.
        eos_token_id: the token, or tokens, that end a completion; the model's own if None; [] for
            completions of ``max_new_tokens`` tokens exactly.
        pad_token_id: the token that fills up completions that have ended; the model's own if None,
            and if it has none, the one that ends them.
        logits_processor: from token ids (rows, tokens) and logits (rows, symbols) to logits, such
            as a ``LogitsProcessorList`` (temperature, top-p, bans). It defines the distribution that
            is sampled from, and ``log_p`` is under that distribution: to train the model without
            it, give :func:`completion_log_probs` to ``Weights.loss`` as ``log_p``.
        catalogue: restricts completions to its items; ``log_p`` is under the restricted distribution.
        chunk: the number of completions per prompt whose gradient is prepared at a time, as in
            :func:`completion_log_probs`; all if None.
        generator: the source of randomness.

    Returns:
        A sample whose ``value`` (batch, k, max_new_tokens) has token ids, without the prompt.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(
    ...     vocab_size=20,
    ...     n_positions=16,
    ...     n_embd=8,
    ...     n_layer=1,
    ...     n_head=1,
    ...     bos_token_id=0,
    ...     eos_token_id=0,
    ... )
    >>> prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    >>> s = sample_completions(GPT2LMHeadModel(config), prompts, k=4, max_new_tokens=5)
    >>> s.value.shape, s.log_p.shape
    (torch.Size([2, 4, 5]), torch.Size([2, 4]))
    """
    check_k(k)
    special = tokens_of(model, eos_token_id, pad_token_id)
    prompts = Prompts(input_ids, attention_mask, special)
    drawing = _drawing(model, prompts, max_new_tokens, logits_processor, catalogue, chunk)
    with drawing as policy:
        sample = stochastic_beam_search(policy, k, generator=generator)
    return policy.filled(sample)


def ancestral_completions(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    k: int,
    max_new_tokens: int,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    logits_processor: Processor | None = None,
    catalogue: Catalogue | None = None,
    chunk: int | None = None,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""$k$ independent completions of every prompt, for :func:`swor.reinforce`.

    As ``model.generate(do_sample=True, num_return_sequences=k)``, with the arguments and the result
    of :func:`sample_completions`.
    """
    check_k(k)
    special = tokens_of(model, eos_token_id, pad_token_id)
    prompts = Prompts(input_ids, attention_mask, special)
    drawing = _drawing(model, prompts, max_new_tokens, logits_processor, catalogue, chunk)
    with drawing as policy:
        sample = ancestral_sample(policy, k, generator=generator)
    return policy.filled(sample)


def beam_completions(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    k: int,
    max_new_tokens: int,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    logits_processor: Processor | None = None,
    catalogue: Catalogue | None = None,
    chunk: int | None = None,
) -> Sample:
    r"""The $k$ likeliest completions that a beam search finds, for :func:`swor.risk`; not random.

    With the arguments, but for the generator, and the result of :func:`sample_completions`. Completions
    are ranked by probability, without a penalty of length; k = 1 is greedy decoding.
    """
    check_k(k)
    special = tokens_of(model, eos_token_id, pad_token_id)
    prompts = Prompts(input_ids, attention_mask, special)
    drawing = _drawing(model, prompts, max_new_tokens, logits_processor, catalogue, chunk)
    with drawing as policy:
        sample = beam_search(policy, k)
    return policy.filled(sample)


def completion_log_probs(
    model: PreTrainedModel,
    input_ids: Tensor,
    value: Tensor,
    *,
    attention_mask: Tensor | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    logits_processor: Processor | None = None,
    catalogue: Catalogue | None = None,
    chunk: int | None = None,
) -> Tensor:
    r"""$\log p(x) = \sum_t \log p(x_t \mid x_{<t})$ of completions, with gradient, in one pass.

    Every prompt is encoded once and shared by its completions, unless the model is training with
    gradient checkpointing, which does without a cache. Dropout acts if the model is in training mode.

    Args:
        model: a decoder-only or encoder-decoder model.
        input_ids: prompts, (batch, tokens), padded on the left if the model is decoder-only.
        value: completions, (batch, k, n); what follows the end of one does not count.
        attention_mask: (batch, tokens), 0 for padding; None if there is none.
        eos_token_id: as in :func:`sample_completions`.
        pad_token_id: the token that prompts are padded with, to tell a missing attention mask.
        logits_processor: as in :func:`sample_completions`: the distribution that is scored under.
        catalogue: likewise; what is no item has the log-probability −inf.
        chunk: the number of completions per prompt at a time: the activations of one chunk are kept
            in memory, and those of the others computed again in the backward pass.

    Returns:
        (batch, k)
    """
    special = tokens_of(model, eos_token_id, pad_token_id)
    mask = check_prompts(model, Prompts(input_ids, attention_mask, special))
    check_value(value, len(input_ids))
    ranks = ranks_of(model, input_ids.device)
    encoded = network(model, input_ids, mask, sharded=ranks is not None)
    checkpointing = underlying(model).is_gradient_checkpointing and model.training
    cached = ranks is None and not checkpointing
    if catalogue is not None:
        catalogue.check(special, vocabulary(model), max(value.shape[-1], catalogue.length))
    head = Head(encoded, special, processor=logits_processor, catalogue=catalogue)
    return Scorer(encoded, head, special, cached=cached, chunk=chunk).log_prob(value)


@contextmanager
def _drawing(
    model: PreTrainedModel,
    prompts: Prompts,
    max_new_tokens: int,
    processor: Processor | None,
    catalogue: Catalogue | None,
    chunk: int | None,
) -> Iterator[CompletionPolicy]:
    """The policy to draw from, without dropout."""
    check_max_new_tokens(max_new_tokens)
    mask = check_prompts(model, prompts)
    if catalogue is not None:
        catalogue.check(prompts.tokens, vocabulary(model), max_new_tokens)
    with evaluating(model):
        ranks = ranks_of(model, mask.device)
        encoded = network(model, prompts.input_ids, mask, sharded=ranks is not None)
        head = Head(encoded, prompts.tokens, processor=processor, catalogue=catalogue)
        # A model that is spread over ranks is called once for a gradient.
        scorer = Scorer(encoded, head, prompts.tokens, cached=ranks is None, chunk=chunk)
        policy = CompletionPolicy(
            encoded, max_new_tokens, prompts.tokens, head, scorer, ranks=ranks
        )
        yield policy
        policy.finish()
