"""The TRL trainer with a vLLM engine in the same process, and with a server; `make test-vllm` runs these."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import combinations, product

import pytest
import torch
from vllm_serve import serving

pytestmark = [
    pytest.mark.skipif(
        find_spec("vllm") is None or find_spec("trl") is None,
        reason="vLLM and TRL are not here: run `make test-vllm`",
    ),
    pytest.mark.filterwarnings("ignore"),
]

WORDS = ["<eos>", "a", "b"]
COMPLETIONS = torch.tensor([[0, 0], *([x, y] for x, y in product((1, 2), (0, 1, 2)))])


def save(folder):
    """A random model with seven completions of up to two tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=3, hidden_size=64, intermediate_size=64, num_hidden_layers=2, head_dim=32,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, bos_token_id=1,
        eos_token_id=0, pad_token_id=0, initializer_range=0.2, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<eos>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<eos>", eos_token="<eos>", padding_side="left"
    )
    tokenizer.save_pretrained(folder)


def likes_a(completions, **_):
    return [text.split().count("a") / 2 for text in completions]


def settings(folder, mode, **given):
    """Settings of three short steps."""
    from swor.integrations.trl import UnorderedSetConfig

    return UnorderedSetConfig(
        str(folder / "out"), use_vllm=True, vllm_mode=mode, vllm_max_model_length=64,
        vllm_gpu_memory_utilization=0.1, num_generations=3, per_device_train_batch_size=6,
        max_completion_length=2, max_steps=3, learning_rate=1e-2, logging_steps=1, beta=0.0,
        temperature=0.8, report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False,
        save_strategy="no", disable_tqdm=True, model_init_kwargs={"dtype": "float32"}, **given,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trainer that has trained for three steps."""
    from datasets import Dataset

    from swor.integrations.trl import UnorderedSetTrainer
    from swor.integrations.vllm import ENGINE

    folder = tmp_path_factory.mktemp("run")
    save(folder / "model")
    args = settings(folder, "colocate")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            patch.delenv(name, raising=False)
        patch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        # A build for CPUs packs the weights of linear layers and drops the originals, into which TRL loads.
        patch.setattr("vllm._custom_ops._supports_onednn", False)
        # In the precision of the trainer, without compiling, with a small cache.
        small = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 2**26}
        for name, given in small.items():
            patch.setitem(ENGINE, name, given)
        data = Dataset.from_dict({"prompt": ["a b", "b", "a", "b b a"] * 4})
        trainer = UnorderedSetTrainer(str(folder / "model"), likes_a, args, data)
        trainer.before = [p.detach().clone() for p in trainer.model.parameters()]
        trainer.train()
        yield trainer


def test_it_trains(run):
    changed = [
        not torch.equal(a, b) for a, b in zip(run.before, run.model.parameters(), strict=True)
    ]
    assert all(changed)
    logged = [entry for entry in run.state.log_history if "reward" in entry]
    assert len(logged) == 3 and all(0 <= entry["reward"] <= 1 for entry in logged)
    assert all(0 < entry["swor/mass_covered"] <= 1 for entry in logged)


def log_probs(run, prompt):
    from swor.integrations.transformers import completion_log_probs

    ids = torch.tensor([run.processing_class(prompt)["input_ids"]])
    with torch.no_grad():
        return completion_log_probs(
            run.model, ids, COMPLETIONS[None], eos_token_id=0, pad_token_id=0,
            logits_processor=lambda _, logits: logits / run.temperature,
        )[0]  # fmt: skip


def test_the_engine_has_the_trained_weights(run):
    """Its log-probabilities are those that TRL differentiates, and the mass outside fits them."""
    run.model.train()
    run._last_loaded_step = -1  # as after a step
    batch = run._generate_and_score_completions([{"prompt": "a b"}] * 3 + [{"prompt": "b"}] * 3)
    sample = run._sample
    assert torch.allclose(batch["old_logps"].double(), sample.log_p.flatten().double(), atol=1e-4)
    total = sample.log_p.exp().sum(-1) + sample.log_rest.exp()
    assert torch.allclose(total, torch.ones_like(total), atol=1e-4)
    assert all(len(set(map(tuple, group))) == 3 for group in sample.value.tolist())


def test_the_law_is_that_of_the_model(run):
    """Of sets of two of seven completions, by a chi-square test against the model in the trainer."""
    import swor

    run.model.eval()  # with num_generations_eval
    run._last_loaded_step = -1
    log_p, number = log_probs(run, "a b"), 600
    run._generate_single_turn([run.processing_class("a b")["input_ids"]] * (3 * number), None, {})
    known = {tuple(c): i for i, c in enumerate(COMPLETIONS.tolist())}
    found = [tuple(sorted(known[tuple(c)] for c in group)) for group in run._sample.value.tolist()]
    sets = list(combinations(range(7), 3))
    chosen = torch.tensor(sets)
    outside = torch.ones(len(sets), 7, dtype=torch.bool).scatter(1, chosen, False)
    rows = log_p.expand(len(sets), -1)
    rest = rows.masked_fill(~outside, -torch.inf).logsumexp(-1)
    expected = number * swor.log_prob_set(rows.gather(1, chosen), rest).exp()
    counts = torch.tensor([found.count(x) for x in sets])
    common = expected >= 5
    observed = torch.cat([counts[common], counts[~common].sum()[None]])
    mean = torch.cat([expected[common], expected[~common].sum()[None]])
    statistic = ((observed - mean).square() / mean).sum()
    freedom = len(mean) - 1
    assert abs(statistic - freedom) / (2 * freedom) ** 0.5 < 4


@pytest.mark.slow
def test_a_server_of_its_own(tmp_path, monkeypatch):
    """A real `vllm serve`, but for the transfer of weights by NCCL: it keeps those that it started with."""
    from datasets import Dataset
    from trl.generation.vllm_client import VLLMClient

    from swor.integrations.trl import UnorderedSetTrainer

    sent = []
    monkeypatch.setattr(VLLMClient, "init_communicator", lambda self, device: None)
    monkeypatch.setattr(
        VLLMClient, "update_named_params", lambda self, about, given: sent.append(len(list(given)))
    )
    save(tmp_path / "model")
    with serving(tmp_path / "model", tmp_path / "log") as url:
        args = settings(tmp_path, "server", vllm_server_base_url=url)
        data = Dataset.from_dict({"prompt": ["a b", "b", "a", "b b a"] * 4})
        run = UnorderedSetTrainer(str(tmp_path / "model"), likes_a, args, data)
        run.model.train()
        batch = run._generate_and_score_completions([{"prompt": "a b"}] * 3 + [{"prompt": "b"}] * 3)
        sample = run._sample
        log_p = sample.log_p.flatten().double()
        assert torch.allclose(batch["old_logps"].double(), log_p, atol=1e-4)
        total = sample.log_p.exp().sum(-1) + sample.log_rest.exp()
        assert torch.allclose(total, torch.ones_like(total), atol=1e-4)
        run.train()
    assert len(sent) == 3 and set(sent) == {len(list(run.model.parameters()))}
    logged = [entry for entry in run.state.log_history if "reward" in entry]
    assert len(logged) == 3 and all(0 < entry["swor/mass_covered"] <= 1 for entry in logged)
