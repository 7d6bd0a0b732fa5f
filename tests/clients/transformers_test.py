# SPDX-License-Identifier: BSD-3-Clause
"""Tests transformers: many kinds of models train and generate with the CPU's results."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.testing import assert_close

from tests import child
from tests.clients import tiny_models
from tests.clients.comparison import (
    DEVICE,
    assert_same,
    assert_same_tensors,
    assert_trains_alike,
    on_device,
    to_device,
)

PROMPT = (2, 7)


def loss(model: Any, batch: Any) -> Tensor:
    output = model(**batch)
    if output.get("loss") is not None:
        return output.loss  # type: ignore[no-any-return]
    # SAM does not return a loss, so use a function of its masks.
    return output.pred_masks.square().mean()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", tiny_models.EXAMPLES)
def test_trains(name: str) -> None:
    model, batch = tiny_models.EXAMPLES[name]()
    # With weights this small, the gradient of a bias before softmax consists of rounding errors. In
    # the second step, gradients of wav2vec2 are as large as 3, and on both devices their rounding
    # errors are up to 5e-4.
    atol = 1e-3 if name == "wav2vec2" else 1e-4
    assert_trains_alike(model, batch, loss, rtol=1e-3, atol=atol)


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "mixtral"])
def test_trains_in_bfloat16(name: str) -> None:
    model, batch = tiny_models.EXAMPLES[name]()
    assert_trains_alike(model, batch, loss, rtol=5e-2, atol=5e-2, autocast=torch.bfloat16)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_recomputes_activations(name: str) -> None:
    model, batch = tiny_models.EXAMPLES[name]()
    model.gradient_checkpointing_enable()
    assert_trains_alike(model.train(), batch, loss)


def assert_generates_alike(model: Any, prompt: Tensor, **settings: Any) -> Tensor:
    """Checks that the device and the CPU generate the same tokens, and returns them."""
    model.eval()
    ours: Tensor = on_device(model).generate(prompt.to(DEVICE), **settings)
    theirs: Tensor = model.generate(prompt, **settings)
    assert_same(ours, theirs)
    return theirs


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", tiny_models.DECODERS)
def test_generates(name: str, cache: str | None) -> None:
    model = tiny_models.DECODERS[name]()
    settings = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": cache}
    assert_generates_alike(model, tiny_models.tokens(*PROMPT), **settings)


def test_static_cache_compiles() -> None:
    """The decoding step can be compiled. On CUDA, generate() does so by default."""
    model = tiny_models.decoder("Llama", num_hidden_layers=1).eval()
    prompt = tiny_models.tokens(*PROMPT)
    settings = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    theirs = model.generate(prompt, **settings)
    ours = on_device(model)
    ours.forward = torch.compile(ours.forward)
    assert_same(ours.generate(prompt.to(DEVICE), **settings), theirs)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_generates_by_beams(name: str) -> None:
    model = tiny_models.DECODERS[name]()
    settings = {"max_new_tokens": 6, "num_beams": 3, "do_sample": False, "length_penalty": 0.5}
    assert_generates_alike(model, tiny_models.tokens(*PROMPT), **settings)


def test_generates_with_an_assistant() -> None:
    model, assistant = tiny_models.decoder("Llama").eval(), tiny_models.decoder("Llama").eval()
    prompt = tiny_models.tokens(1, 7)
    settings = {"max_new_tokens": 8, "do_sample": False}
    theirs = model.generate(prompt, assistant_model=assistant, **settings)
    ours = on_device(model).generate(
        prompt.to(DEVICE), assistant_model=on_device(assistant), **settings
    )
    assert_same(ours, theirs)


def test_generates_with_processors() -> None:
    """Each setting adds a processor that changes the scores in a different way."""
    model = tiny_models.decoder("Llama")
    settings = {
        "max_new_tokens": 8,
        "min_new_tokens": 4,
        "do_sample": False,
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2,
        "bad_words_ids": [[5], [6, 7]],
        "encoder_repetition_penalty": 1.1,
        "suppress_tokens": [9, 10],
    }
    assert_generates_alike(model, tiny_models.tokens(*PROMPT), **settings)


def test_samples() -> None:
    """Equal seeds lead to equal tokens, and only allowed tokens are drawn."""
    model = on_device(tiny_models.decoder("Llama").eval())
    prompt = tiny_models.tokens(*PROMPT).to(DEVICE)
    settings = {"max_new_tokens": 8, "do_sample": True, "temperature": 2.0, "top_k": 20}
    settings |= {
        "top_p": 0.9,
        "min_p": 0.01,
        "output_scores": True,
        "return_dict_in_generate": True,
    }
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(model.generate(prompt, **settings))
    assert torch.equal(runs[0].sequences, runs[1].sequences)
    assert not torch.equal(runs[0].sequences, runs[2].sequences)
    for step, scores in enumerate(runs[0].scores):
        chosen = runs[0].sequences[:, PROMPT[1] + step]
        assert scores.device == DEVICE
        assert scores.gather(1, chosen[:, None]).isfinite().all()


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_translates(name: str) -> None:
    model = getattr(tiny_models, name)()
    for beams in (1, 3):
        settings = {"max_new_tokens": 6, "num_beams": beams, "do_sample": False}
        assert_generates_alike(model, tiny_models.tokens(*PROMPT), **settings)


def test_transcribes() -> None:
    model = tiny_models.whisper()
    assert_generates_alike(model, tiny_models.spectrograms(), max_new_tokens=6)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention(attention: str) -> None:
    """Attention masks the padding on the left, as in a batch of prompts of different lengths."""
    model = tiny_models.decoder("Llama", attn_implementation=attention).eval()
    batch = {"input_ids": tiny_models.tokens(2, 12), "attention_mask": torch.ones(2, 12).long()}
    batch["attention_mask"][0, :5] = 0
    with torch.no_grad():
        theirs = model(**batch).logits[:, -1]
        ours = on_device(model)(**to_device(batch)).logits[:, -1]
    assert_same(ours, theirs, rtol=1e-4, atol=1e-4)


def test_compiles() -> None:
    model, text = tiny_models.decoder("Llama", num_hidden_layers=1), tiny_models.tokens(2, 12)
    batch = {"input_ids": text, "labels": text}
    theirs = model(**batch)
    theirs.loss.backward()
    ours = on_device(model)
    compiled: Any = torch.compile(ours, fullgraph=True)
    output = compiled(**to_device(batch))
    output.loss.backward()
    assert_same(output.logits, theirs.logits, rtol=1e-4, atol=1e-4)
    for name, parameter in model.named_parameters():
        assert_same(ours.get_parameter(name).grad, parameter.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("place", [0, "openreg:0", DEVICE])
def test_saves_and_loads(tmp_path: Path, place: Any) -> None:
    model = on_device(tiny_models.decoder("Llama"))
    model.save_pretrained(tmp_path)
    for settings in ({"device_map": {"": place}}, {"device_map": place}):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **settings)
        assert_same_tensors(
            loaded.state_dict(), {name: t.cpu() for name, t in model.state_dict().items()}
        )


def test_loads_in_bfloat16(tmp_path: Path) -> None:
    model = tiny_models.decoder("Llama")
    model.save_pretrained(tmp_path)
    settings = {"dtype": torch.bfloat16}
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **settings)
    ours = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map="openreg", **settings
    )
    prompt = tiny_models.tokens(*PROMPT)
    with torch.no_grad():
        assert_same(ours(prompt.to(DEVICE)).logits, theirs(prompt).logits, rtol=2e-2, atol=2e-2)


def test_pipeline() -> None:
    """Tests that the image pipeline moves its inputs to the device."""
    model = tiny_models.EXAMPLES["vit"]()[0].eval()
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    picture = torch.rand(3, 40, 40)
    found = [
        transformers.pipeline(
            "image-classification", model=m, image_processor=processor, device=place
        )(picture_of(picture))
        for m, place in ((on_device(model), "openreg"), (model, "cpu"))
    ]
    assert [entry["label"] for entry in found[0]] == [entry["label"] for entry in found[1]]
    assert_close(*([entry["score"] for entry in answer] for answer in found), rtol=1e-4, atol=1e-5)


def picture_of(values: Tensor) -> Any:
    from PIL import Image

    return Image.fromarray((values.permute(1, 2, 0) * 255).byte().numpy())


@pytest.mark.refused  # only another process uses the device
def test_generates_in_continuous_batches() -> None:
    """Runs in a process that waits for each kernel: transformers omits a wait between streams."""
    printed = child.output(CONTINUOUS, OPENREG_LAUNCH_BLOCKING="1")
    assert printed.endswith("equal")


CONTINUOUS = """
import torch
from tests.clients import torchvision_operators
from tests.clients import tiny_models
from transformers import ContinuousBatchingConfig, GenerationConfig

model = tiny_models.decoder("Llama").eval().to("openreg")
prompts = [[1, 5, 9, 20], [3, 4, 5, 6, 7, 8], [2, 2]]
settings = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": 63, "pad_token_id": 0}
batched = model.generate_batch(
    prompts,
    GenerationConfig(**settings),
    ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64),
)
for prompt, result in zip(prompts, batched.values(), strict=True):
    tokens = model.generate(torch.tensor([prompt], device="openreg"), **settings)
    assert result.generated_tokens == tokens[0, len(prompt) :].tolist(), (result, tokens)
print("equal")
"""
