"""Tiny Hugging Face models, of which every completion can be enumerated."""

from __future__ import annotations

from functools import cache
from itertools import product

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

SYMBOLS, LENGTH, DRAWS = 5, 3, 4000
PAD = 4
PROMPTS = torch.tensor([[1, 2, 3], [PAD, PAD, 2]])
LEFT = torch.tensor([[1, 1, 1], [0, 0, 1]])
NAMES = ["gpt2", "llama", "llama_two_ends", "t5"]


@cache
def tiny(name, dropout=0.0):
    """A random model with clear preferences, in float64."""
    common = {"vocab_size": SYMBOLS, "bos_token_id": 1, "pad_token_id": PAD}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        if name == "gpt2":
            sizes = {"n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2}
            sizes |= {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
            config = GPT2Config(eos_token_id=0, initializer_range=0.5, **sizes, **common)
            model = GPT2LMHeadModel(config)
        elif name.startswith("llama"):
            sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2}
            sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1}
            ends = [0, 3] if name == "llama_two_ends" else 0
            config = LlamaConfig(eos_token_id=ends, initializer_range=0.5, **sizes, **common)
            model = LlamaForCausalLM(config)
        else:
            sizes = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
            sizes |= {"eos_token_id": 0, "decoder_start_token_id": PAD, "dropout_rate": 0.0}
            model = T5ForConditionalGeneration(T5Config(**sizes, **common))
    return model.double().eval()


def masks(name):
    """Prompts and their mask: a decoder's on the left, an encoder's on the right."""
    return (PROMPTS.flip(-1), LEFT.flip(-1)) if name == "t5" else (PROMPTS, LEFT)


def ends(model):
    end = model.generation_config.eos_token_id
    return tuple(end) if isinstance(end, list) else (end,)


@cache
def sequences(name):
    """Every completion, filled up with padding, (n, LENGTH)."""
    stops = ends(tiny(name))
    found = set()
    for x in product(range(SYMBOLS), repeat=LENGTH):
        stop = next((t for t in range(LENGTH) if x[t] in stops), LENGTH)
        found.add(x[: stop + 1] + (PAD,) * (LENGTH - stop - 1))
    return sorted(found)


@cache
def log_probs(name, which, temperature=1.0):
    """The log-probability of every completion of a prompt: plain passes, no cache, no padding."""
    model, stops = tiny(name), ends(tiny(name))
    ids, mask = masks(name)
    prompt = ids[which][mask[which].bool()].tolist()
    out = {}
    for x in sequences(name):
        total = torch.zeros((), dtype=torch.float64)
        for t, symbol in enumerate(x):
            if name == "t5":
                prefix = torch.tensor([[PAD, *x[:t]]])
                given = {"input_ids": torch.tensor([prompt]), "decoder_input_ids": prefix}
            else:
                given = {"input_ids": torch.tensor([prompt + list(x[:t])])}
            with torch.no_grad():
                logits = model(**given, use_cache=False).logits[0, -1] / temperature
            total = total + logits.log_softmax(-1)[symbol]
            if symbol in stops:
                break
        out[x] = total
    return out


def rows(value):
    return [tuple(x) for x in value.tolist()]


def many(name, which):
    ids, mask = masks(name)
    return ids[which].expand(DRAWS, -1), mask[which].expand(DRAWS, -1)
