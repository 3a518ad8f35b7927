"""``model.generate(custom_generate=distinct_generate)``: distinct completions, as generate returns them."""

from __future__ import annotations

import copy

import pytest
import torch
from problems import seeded
from tiny_models import LENGTH, NAMES, PAD, SYMBOLS, masks, rows, tiny
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput

from swor.integrations.transformers import distinct_generate, sample_completions

PLAIN = {"do_sample": True, "top_k": 0, "custom_generate": distinct_generate}


def generate(name, *, k=4, **given):
    """Completions of both prompts; every token may be drawn unless ``given`` says otherwise."""
    ids, mask = masks(name)
    settings = PLAIN | {"max_new_tokens": LENGTH, "num_return_sequences": k} | given
    if "max_length" in given:
        del settings["max_new_tokens"]
    return tiny(name).generate(ids, attention_mask=mask, **settings)


def completions(name, *, k=4, seed=0, **given):
    ids, mask = masks(name)
    with torch.no_grad():
        return sample_completions(
            tiny(name), ids, mask, k=k, max_new_tokens=LENGTH, generator=seeded(seed), **given
        )


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_it_draws_what_sample_completions_draws(name, k):
    output = generate(name, k=k, generator=seeded(), return_dict_in_generate=True)
    same = completions(name, k=k)
    longest = output.sample.value.shape[-1]
    assert torch.equal(output.sample.value, same.value[..., :longest])
    assert (same.value[..., longest:] == PAD).all()
    assert torch.equal(output.sample.log_p, same.log_p)
    assert torch.equal(output.sample.log_rest, same.log_rest)
    encoder_decoder = name == "t5"
    kind = GenerateEncoderDecoderOutput if encoder_decoder else GenerateDecoderOnlyOutput
    assert isinstance(output, kind)


@pytest.mark.parametrize("name", NAMES)
def test_sequences_are_prompts_with_distinct_completions(name):
    ids, _ = masks(name)
    begin = torch.full((2, 1), PAD) if name == "t5" else ids
    sequences = generate(name, k=3)
    assert sequences.shape[0] == 6
    assert torch.equal(sequences[:, : begin.shape[-1]], begin.repeat_interleave(3, 0))
    drawn = sequences[:, begin.shape[-1] :].unflatten(0, (2, 3))
    assert all(len(set(rows(x))) == 3 for x in drawn)


@pytest.mark.parametrize("name", NAMES)
def test_scores_lead_to_the_log_probabilities(name):
    """As generate's own scores: compute_transition_scores gives the log-probability of every token."""
    output = generate(name, output_scores=True, return_dict_in_generate=True, generator=seeded(3))
    assert len(output.scores) == output.sample.value.shape[-1]
    assert output.scores[0].shape == (8, SYMBOLS)
    found = tiny(name).compute_transition_scores(
        output.sequences, output.scores, normalize_logits=True
    )
    assert torch.allclose(found.sum(-1).view(2, 4), output.sample.log_p, rtol=0, atol=1e-12)


def test_the_settings_of_the_config_define_the_distribution():
    chosen = {"temperature": 0.5, "top_k": 4, "top_p": 0.95, "min_new_tokens": 2}
    output = generate("gpt2", generator=seeded(), return_dict_in_generate=True, **chosen)
    processors = [
        MinNewTokensLengthLogitsProcessor(3, 2, torch.tensor([0])),
        TemperatureLogitsWarper(0.5),
        TopKLogitsWarper(4),
        TopPLogitsWarper(0.95),
    ]
    same = completions("gpt2", logits_processor=LogitsProcessorList(processors))
    assert torch.equal(output.sample.value, same.value)
    assert torch.equal(output.sample.log_p, same.log_p)
    assert not torch.equal(same.value, completions("gpt2").value)


def test_a_function_that_allows_tokens_sees_the_number_of_the_prompt():
    def allowed(prompt, tokens):
        return [1, 2] if prompt == 0 else [2, 3]

    output = generate("gpt2", prefix_allowed_tokens_fn=allowed, return_dict_in_generate=True)
    assert {1, 2} == set(output.sample.value[0].flatten().tolist())
    assert {2, 3} == set(output.sample.value[1].flatten().tolist())


def test_lengths_and_ends_are_those_of_the_config():
    output = generate("gpt2", max_length=5, eos_token_id=[0, 2], return_dict_in_generate=True)
    value = output.sample.value
    assert value.shape[-1] == 2 and output.sequences.shape[-1] == 5
    ended = (value[..., 0] == 0) | (value[..., 0] == 2)
    assert ended.any() and (value[..., 1][ended] == PAD).all()


def test_beginnings_of_a_decoder_are_kept():
    """A decoder of an encoder-decoder model may begin with more than its start token."""
    begin = torch.tensor([[PAD, 1, 2], [PAD, 3, 1]])
    output = generate("t5", decoder_input_ids=begin, return_dict_in_generate=True)
    assert torch.equal(output.sequences[:, :3], begin.repeat_interleave(4, 0))
    ids, mask = masks("t5")
    logits = tiny("t5")(
        input_ids=ids.repeat_interleave(4, 0),
        attention_mask=mask.repeat_interleave(4, 0),
        decoder_input_ids=output.sequences[:, :-1],
    ).logits[:, 2:]
    value = output.sequences[:, 3:]
    each = logits.log_softmax(-1).gather(-1, value.unsqueeze(-1)).squeeze(-1)
    counts = (value == 0).cumsum(-1) - (value == 0).long() == 0  # up to the end token
    assert torch.allclose((each * counts).sum(-1).view(2, 4), output.sample.log_p, atol=1e-12)


def test_bart_encodes_its_prompts_once():
    config = BartConfig(
        vocab_size=9, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=32,
    )  # fmt: skip
    config.pad_token_id, config.bos_token_id, config.eos_token_id = 1, 0, 2
    config.decoder_start_token_id, config.forced_eos_token_id = 2, 2
    model, calls = BartForConditionalGeneration(config).double(), []
    model.get_encoder().register_forward_hook(lambda *_: calls.append(1))
    output = model.generate(
        torch.tensor([[3, 4, 5, 2]]), num_return_sequences=5, max_new_tokens=6,
        return_dict_in_generate=True, **PLAIN,
    )  # fmt: skip
    assert len(calls) == 1
    assert len(set(rows(output.sample.value[0]))) == 5
    assert (output.sample.value == 2).any(-1).all()  # forced_eos_token_id


@pytest.mark.parametrize(
    "change, message",
    [
        ({"num_beams": 4}, "the strategy 'beam_sample'"),
        ({"num_beams": 4, "do_sample": False}, "the strategy 'beam_search'"),
        ({"do_sample": False, "num_return_sequences": 1}, "the strategy 'greedy_search'"),
        ({"max_time": 1.0}, "the stopping criterion MaxTimeCriteria"),
        ({"output_hidden_states": True}, "output_hidden_states=True"),
        ({"output_logits": True}, "output_logits=True"),
        ({"use_cache": False}, "use_cache=False"),
        ({"cache_implementation": "static"}, "cache_implementation='static'"),
        ({"prefill_chunk_size": 2}, "prefill_chunk_size=2"),
        ({"encoder_repetition_penalty": 1.5}, "EncoderRepetitionPenaltyLogitsProcessor"),
        ({"guidance_scale": 1.5}, "UnbatchedClassifierFreeGuidanceLogitsProcessor"),
        ({"token_type_ids": torch.zeros(2, 3).long()}, "the model input token_type_ids"),
        ({"position_ids": torch.ones(2, 3).long()}, "position_ids of your own"),
    ],
)
def test_what_cannot_be_honoured_is_refused(change, message):
    with pytest.raises(ValueError, match=f"distinct_generate was given .*{message}.*; expected"):
        generate("gpt2", **change)


def test_a_cache_with_tokens_is_refused():
    ids, mask = masks("gpt2")
    cache = tiny("gpt2")(input_ids=ids[:, :2], attention_mask=mask[:, :2]).past_key_values
    with pytest.raises(ValueError, match="past_key_values with tokens in them"):
        generate("gpt2", k=1, past_key_values=cache)


def test_too_few_completions_are_an_error():
    with pytest.raises(ValueError, match="only"):
        generate("gpt2", k=4, top_k=1)


def test_adapters_of_the_weights_act_and_virtual_tokens_are_refused():
    peft = pytest.importorskip("peft")
    ids, mask = masks("llama")
    lora = {"r": 2, "init_lora_weights": False, "target_modules": ["q_proj", "v_proj"]}
    kinds = [peft.LoraConfig(**lora), peft.PromptTuningConfig(num_virtual_tokens=2)]
    for config in kinds:
        config.task_type = "CAUSAL_LM"
    adapted, virtual = (peft.get_peft_model(copy.deepcopy(tiny("llama")), x) for x in kinds)
    settings = PLAIN | {"num_return_sequences": 3, "max_new_tokens": LENGTH}
    settings |= {"input_ids": ids, "attention_mask": mask, "return_dict_in_generate": True}
    output = adapted.double().generate(generator=seeded(), **settings)
    with torch.no_grad():
        same = sample_completions(
            adapted, ids, mask, k=3, max_new_tokens=LENGTH, generator=seeded()
        )
    assert torch.equal(output.sample.log_p, same.log_p)
    with pytest.raises(ValueError, match="as by prompt tuning"):
        virtual.double().generate(**settings)
