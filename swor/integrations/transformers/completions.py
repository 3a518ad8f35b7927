"""Completions of prompts by a Hugging Face model: distinct, independent, or the most probable.

Completions are always drawn without dropout, even if the model is in training mode. They are drawn from
the model's own distribution (temperature 1, all tokens), unless a logits processor changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from swor._checks import check_count, kind
from swor.integrations.transformers._head import Head, Processor
from swor.integrations.transformers._networks import network_of
from swor.integrations.transformers._policy import CompletionPolicy
from swor.integrations.transformers._prompts import Prompts, check_value, prompts_of, vocabulary
from swor.integrations.transformers._wrappers import evaluating, ranks_of
from swor.integrations.transformers.catalogue import Catalogue
from swor.samplers.sequences import ancestral_sample, beam_search, stochastic_beam_search
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
    allow_fewer: bool = False,
    generator: torch.Generator | None = None,
) -> Sample:
    r"""Draw $k$ different completions of every prompt, a sample without replacement from the model.

    This is a stochastic beam search (:func:`swor.stochastic_beam_search`) with the model's cache of keys
    and values. Every prompt is encoded once, and completions that have ended cause no further computation.
    The sample is valid for :func:`swor.unordered_set` and all other rules for distinct samples. Under
    ``torch.no_grad()``, the log-probabilities are those of the search. Otherwise they are computed
    again, with gradient, in one pass, as by :func:`completion_log_probs`.

    A model with adapters (PEFT) is sampled with them. If the weights are spread over ranks (FSDP,
    DeepSpeed ZeRO-3), all ranks call this function together, each with prompts of its own; those whose
    completions end first keep calling the model until the others have ended.

    Args:
        model: a decoder-only or encoder-decoder model, which may be wrapped.
        input_ids: the prompts, (batch, tokens), padded on the left if the model is decoder-only.
        attention_mask: (batch, tokens), 0 for padding; None if there is no padding.
        k: the number of completions per prompt.
        max_new_tokens: the largest number of tokens in a completion.
        eos_token_id: the token, or tokens, that end a completion. None stands for the tokens in the
            model's configuration, and [] for completions of exactly ``max_new_tokens`` tokens.
        pad_token_id: the token that pads completions that have ended. None stands for the token in the
            model's configuration, or for the end token if there is none.
        logits_processor: a function from token ids (rows, tokens) and logits (rows, symbols) to logits,
            such as a ``LogitsProcessorList`` with a temperature, top-p or banned tokens. It changes the
            distribution that is sampled from, and ``log_p`` refers to the changed distribution. To train
            the model without it, pass the result of :func:`completion_log_probs` to ``Weights.loss`` as
            ``log_p``.
        catalogue: the items that completions are restricted to; ``log_p`` refers to the restricted
            distribution.
        chunk: the number of completions per prompt whose gradient is prepared at a time, as in
            :func:`completion_log_probs`; None for all of them.
        allow_fewer: whether a prompt may have fewer than k completions, for instance items of a catalogue.
            All of them are then drawn, and the places that are left over have tokens of 0, the
            log-probability −inf and, by every rule, the weight 0.
        generator: the source of randomness.

    Returns:
        A sample whose ``value``, (batch, k, max_new_tokens), has token ids, without the prompt.

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
    prompts = prompts_of(model, input_ids, attention_mask, eos_token_id, pad_token_id)
    draw = partial(stochastic_beam_search, k=k, allow_fewer=allow_fewer, generator=generator)
    return _complete(model, prompts, max_new_tokens, draw, logits_processor, catalogue, chunk)


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
    r"""Draw $k$ independent completions of every prompt, for :func:`swor.rloo`.

    The completions have the distribution of ``model.generate(do_sample=True, num_return_sequences=k)``.
    The arguments and the result are those of :func:`sample_completions`.
    """
    prompts = prompts_of(model, input_ids, attention_mask, eos_token_id, pad_token_id)
    draw = partial(ancestral_sample, k=k, generator=generator)
    return _complete(model, prompts, max_new_tokens, draw, logits_processor, catalogue, chunk)


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
    allow_fewer: bool = False,
) -> Sample:
    r"""Find the $k$ most probable completions of every prompt by a beam search, for :func:`swor.risk`.

    The arguments and the result are those of :func:`sample_completions`, without a generator, since the
    search is deterministic. Completions are ranked by their probability, without a length penalty; k = 1 is
    greedy decoding.
    """
    prompts = prompts_of(model, input_ids, attention_mask, eos_token_id, pad_token_id)
    draw = partial(beam_search, k=k, allow_fewer=allow_fewer)
    return _complete(model, prompts, max_new_tokens, draw, logits_processor, catalogue, chunk)


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
    r"""Compute the log-probabilities of completions, with gradient, in one pass.

    $$\log p(x) = \sum_t \log p(x_t \mid x_{<t})$$

    Every prompt is encoded once, and its completions share the encoding. An exception is training with
    gradient checkpointing, which does not use a cache. Dropout is active if the model is in training mode.

    Args:
        model: a decoder-only or encoder-decoder model.
        input_ids: the prompts, (batch, tokens), padded on the left if the model is decoder-only.
        value: the completions, (batch, k, n). Tokens after the end of a completion do not count.
        attention_mask: (batch, tokens), 0 for padding; None if there is no padding.
        eos_token_id: as in :func:`sample_completions`.
        pad_token_id: the token with which prompts are padded, to detect a missing attention mask.
        logits_processor: as in :func:`sample_completions`; it defines the distribution of the scores.
        catalogue: as in :func:`sample_completions`; a completion that is no item has the
            log-probability −inf.
        chunk: the number of completions per prompt that are processed at a time. Only the activations of
            one chunk are in memory; they are computed again in the backward pass. None processes all of
            them at once.

    Returns:
        (batch, k)
    """
    prompts = prompts_of(model, input_ids, attention_mask, eos_token_id, pad_token_id)
    check_value(value, prompts, vocabulary(model))
    length = value.shape[-1] if catalogue is None else max(value.shape[-1], catalogue.length)
    policy = _policy(model, prompts, length, logits_processor, catalogue, chunk, drawn=False)
    return policy.log_prob(value)


def _complete(
    model: PreTrainedModel,
    prompts: Prompts,
    max_new_tokens: int,
    draw: Callable[[CompletionPolicy], Sample],
    processor: Processor | None,
    catalogue: Catalogue | None,
    chunk: int | None,
) -> Sample:
    """Draw completions, with dropout disabled."""
    check_count("max_new_tokens", max_new_tokens)
    with evaluating(model):
        policy = _policy(model, prompts, max_new_tokens, processor, catalogue, chunk, drawn=True)
        sample = draw(policy)
        policy.finish()
    return policy.filled(sample)


def _policy(
    model: PreTrainedModel,
    prompts: Prompts,
    length: int,
    processor: Processor | None,
    catalogue: Catalogue | None,
    chunk: int | None,
    *,
    drawn: bool,
) -> CompletionPolicy:
    """Return the distribution over completions of up to ``length`` tokens."""
    if catalogue is not None:
        if not isinstance(catalogue, Catalogue):
            raise TypeError(
                f"catalogue is {kind(catalogue)}; expected a Catalogue. Make it once with Catalogue(items), "
                "from the token ids of every item."
            )
        catalogue.check(prompts.tokens, vocabulary(model), length)
    ranks = ranks_of(model, prompts.input_ids.device)
    network = network_of(model, prompts.input_ids, prompts.mask, sharded=ranks is not None)
    head = Head(network, prompts.tokens, processor=processor, catalogue=catalogue)
    return CompletionPolicy(head, length, ranks=ranks, chunk=chunk, drawn=drawn)
