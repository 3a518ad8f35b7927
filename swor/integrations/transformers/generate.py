"""Distinct completions from ``model.generate``: a decoding method for its ``custom_generate``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from swor._checks import check_count
from swor.integrations.transformers._head import Head
from swor.integrations.transformers._networks import Decoder, EncoderDecoder, Network
from swor.integrations.transformers._policy import CompletionPolicy, PartialCompletions
from swor.integrations.transformers._prompts import Tokens, check_prompts, longest, tokens_of
from swor.integrations.transformers._wrappers import Ranks, evaluating, ranks_of
from swor.samplers.sequences import stochastic_beam_search
from swor.types import Sample

if TYPE_CHECKING:
    from transformers import (
        GenerationConfig,
        LogitsProcessorList,
        PreTrainedModel,
        StoppingCriteriaList,
    )
    from transformers.generation import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

# Of what generate passes on: what is used here, and what it prepares for its own loop.
USED = {"attention_mask", "encoder_outputs", "past_key_values", "position_ids"}
PREPARED = {"logits_to_keep", "use_cache"}
# These have a row, or a state, for every row of generate's own loop.
BOUND_TO_ROWS = (
    "ClassifierFreeGuidanceLogitsProcessor",
    "EncoderNoRepeatNGramLogitsProcessor",
    "EncoderRepetitionPenaltyLogitsProcessor",
    "SynthIDTextWatermarkLogitsProcessor",
    "UnbatchedClassifierFreeGuidanceLogitsProcessor",
)
OUTPUTS = ("output_attentions", "output_hidden_states", "output_logits")


@torch.no_grad()
def distinct_generate(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    generator: torch.Generator | None = None,
    **model_kwargs: Any,
) -> Tensor | GenerateDecoderOnlyOutput | GenerateEncoderDecoderOutput:
    r"""Make ``model.generate`` draw different completions: pass it as ``custom_generate``.

    ``model.generate(…, do_sample=True, num_return_sequences=k, custom_generate=distinct_generate)`` draws $k$
    completions of every prompt without replacement, where it would draw them independently. Each is drawn
    from the distribution that generate itself would sample from: temperature, top-k, top-p, penalties and
    other settings of the generation config act as usual, and so do their defaults (``top_k=50``, for one).
    Use it where code calls ``generate`` already; otherwise :func:`sample_completions` says the same with
    fewer arguments. Decoder-only and encoder-decoder models are served. Dropout is disabled.

    What cannot be honoured is refused: other strategies (``num_beams``, ``do_sample=False``, …), stopping
    criteria other than a largest length and end tokens, caches other than the default one, processors that
    are bound to the rows of generate's own loop, and inputs other than tokens. A streamer or an assistant
    model is not passed on by ``generate``, so it has no effect.

    Args:
        model: passed by ``generate``, like the next four.
        input_ids: the prompts, once for every completion.
        logits_processor: all processors that the generation config asks for.
        stopping_criteria: likewise.
        generation_config: the settings.
        generator: the source of randomness, as an argument of ``generate``.
        model_kwargs: what else ``generate`` prepares.

    Returns:
        The sequences, (batch · k, tokens), as from ``generate``. The k completions of a prompt follow each
        other, in the order sampled. With ``return_dict_in_generate=True``, the usual output, which has also
        ``sample``, a :class:`swor.Sample` for all rules, with ``value`` (batch, k, new tokens), ``log_p``
        and ``log_rest``. With ``output_scores=True``, ``scores`` has log-probabilities.

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
    >>> output = GPT2LMHeadModel(config).generate(
    ...     torch.tensor([[1, 2, 3], [4, 5, 6]]),
    ...     do_sample=True,
    ...     num_return_sequences=4,
    ...     max_new_tokens=5,
    ...     pad_token_id=0,
    ...     return_dict_in_generate=True,
    ...     custom_generate=distinct_generate,
    ... )
    >>> output.sequences.shape, output.sample.log_p.shape
    (torch.Size([8, 8]), torch.Size([2, 4]))

    References:
        | Stochastic Beams and Where to Find Them: The Gumbel-Top-k Trick for Sampling Sequences
        | Without Replacement (Kool et al., 2019c)
        | https://arxiv.org/abs/1903.06059
    """
    _check_settings(model, generation_config)
    _check_processors(logits_processor)
    _check_inputs(model_kwargs)
    k = generation_config.num_return_sequences
    begin = input_ids[::k]
    length, ends = _limits(stopping_criteria)
    tokens = tokens_of(model, ends, generation_config.pad_token_id)
    with evaluating(model):
        network = _network(model, begin, tokens, k, model_kwargs)
        head = Head(network, tokens, processor=logits_processor)
        kind = RecordingPolicy if generation_config.output_scores else CompletionPolicy
        policy = kind(head, length - begin.shape[-1], ranks=ranks_of(model, begin.device))
        drawn = stochastic_beam_search(policy, k, generator=generator)
        policy.finish()
    return _output(model, generation_config, input_ids, policy, drawn)


class RecordingPolicy(CompletionPolicy):
    """A policy that remembers the log-probabilities of all steps of a search, for :meth:`scores`."""

    def __init__(self, head: Head, length: int, *, ranks: Ranks | None = None) -> None:
        super().__init__(head, length, ranks=ranks)
        # The tokens before each step, and its result.
        self.history: list[tuple[Tensor, Tensor]] = []

    def step(self, state: PartialCompletions) -> tuple[Tensor, PartialCompletions]:
        """Return the log-probabilities of the next token, and remember them."""
        log_probs, state = super().step(state)
        self.history.append((state.tokens, log_probs))
        return log_probs, state

    def scores(self, value: Tensor) -> tuple[Tensor, ...]:
        """Return the log-probabilities along completions (batch, k, n), each (batch · k, symbols).

        The completions are as the search returned them. After the end of one, padding is certain.
        """
        counted, scores = self.tokens.counted(value), []
        for t, (tokens, log_probs) in enumerate(self.history):
            same = (value[:, :, None, :t] == tokens[:, None]).all(-1)
            beam = same.long().argmax(-1, keepdim=True).expand(-1, -1, log_probs.shape[-1])
            padding = torch.full_like(log_probs[:, :1], -torch.inf)
            padding[..., self.tokens.pad] = 0.0
            rows = torch.where(counted[..., t, None], log_probs.gather(1, beam), padding)
            scores.append(rows.flatten(0, 1))
        return tuple(scores)


def _output(
    model: PreTrainedModel,
    config: GenerationConfig,
    input_ids: Tensor,
    policy: CompletionPolicy,
    drawn: Sample,
) -> Tensor | GenerateDecoderOnlyOutput | GenerateEncoderDecoderOutput:
    """Return what generate would return; as there, no more columns than the longest completion needs."""
    from transformers.generation import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

    columns = longest(policy.tokens.counted(drawn.value))
    sample = policy.filled(replace(drawn, value=drawn.value[..., :columns]))
    sequences = torch.cat([input_ids, sample.value.flatten(0, 1)], dim=-1)
    if not config.return_dict_in_generate:
        return sequences
    scores = policy.scores(drawn.value) if isinstance(policy, RecordingPolicy) else None
    encoder_decoder = model.config.is_encoder_decoder
    kind = GenerateEncoderDecoderOutput if encoder_decoder else GenerateDecoderOnlyOutput
    output = kind(sequences=sequences, scores=scores)
    output["sample"] = sample
    return output


def _network(
    model: PreTrainedModel, begin: Tensor, tokens: Tokens, k: int, given: dict[str, Any]
) -> Network:
    """Return the model with its prompts, each of which generate has repeated k times."""
    mask = given.get("attention_mask")
    mask = None if mask is None else mask[::k]
    if model.config.is_encoder_decoder:
        hidden = given["encoder_outputs"][0][::k]
        mask = torch.ones_like(hidden[..., 0], dtype=torch.long) if mask is None else mask
        return EncoderDecoder(model, mask, begin, {"encoder_outputs": (hidden,)})
    ones = torch.ones_like(begin)  # generate leaves out a mask without padding
    mask = check_prompts(model, begin, ones if mask is None else mask, tokens)
    _check_positions(given.get("position_ids"), mask, k)
    return Decoder(model, begin, mask)


def _limits(criteria: StoppingCriteriaList) -> tuple[int, list[int]]:
    """Return the largest length of prompt and completion, and the tokens that end a completion."""
    from transformers import EosTokenCriteria, MaxLengthCriteria

    length, ends = None, list[int]()
    for criterion in criteria:
        if isinstance(criterion, MaxLengthCriteria):
            length = criterion.max_length
        elif isinstance(criterion, EosTokenCriteria):
            ends = criterion.eos_token_id.tolist()
        else:
            _refuse(
                f"the stopping criterion {type(criterion).__name__}",
                "max_new_tokens or max_length, and eos_token_id. A completion must end by its own tokens",
            )
    if length is None:
        _refuse("no largest length", "max_new_tokens or max_length")
    return length, ends


def _check_settings(model: PreTrainedModel, config: GenerationConfig) -> None:
    mode = config.get_generation_mode().value
    if mode != "sample":
        _refuse(
            f"the strategy {mode!r} (do_sample={config.do_sample}, num_beams={config.num_beams})",
            "do_sample=True and num_return_sequences=k, for k different completions",
        )
    for name in OUTPUTS:
        if getattr(config, name):
            _refuse(
                f"{name}=True", "output_scores=True at the most. Call the model on the sequences"
            )
    if not config.use_cache or config.cache_implementation not in (None, "dynamic"):
        _refuse(
            f"use_cache={config.use_cache}, cache_implementation={config.cache_implementation!r}",
            "use_cache=True and the default cache, whose rows can be moved",
        )
    if config.prefill_chunk_size is not None:
        _refuse(
            f"prefill_chunk_size={config.prefill_chunk_size}", "None, with fewer prompts at a time"
        )
    if "prepare_inputs_for_generation" in vars(model):  # as PEFT does for virtual tokens
        _refuse(
            "a model whose prepare_inputs_for_generation was replaced, as by prompt tuning",
            "one that takes its prompts as they are. Use an adapter of the weights, such as LoRA",
        )
    check_count("num_return_sequences", config.num_return_sequences)


def _check_processors(processors: LogitsProcessorList) -> None:
    for processor in processors:
        if type(processor).__name__ in BOUND_TO_ROWS:
            _refuse(
                f"the logits processor {type(processor).__name__}",
                "processors that depend on the tokens and logits of a row alone",
            )


def _check_inputs(given: dict[str, Any]) -> None:
    others = [name for name, x in given.items() if x is not None and name not in USED | PREPARED]
    if others:
        _refuse(
            f"the model input {', '.join(sorted(others))}", "token ids and an attention mask alone"
        )
    cache = given.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        _refuse("past_key_values with tokens in them", "the whole prompt as tokens")


def _check_positions(given: Tensor | None, mask: Tensor, k: int) -> None:
    positions = mask.cumsum(-1) - 1
    if given is not None and bool(((given[::k] != positions) & mask.bool()).any()):
        _refuse("position_ids of your own", "none, so that tokens are counted without padding")


def _refuse(given: str, expected: str) -> NoReturn:
    raise ValueError(f"distinct_generate was given {given}; expected {expected}.")
