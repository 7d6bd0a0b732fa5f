# SPDX-License-Identifier: BSD-3-Clause
"""Tests diffusers: networks train, and schedulers and pipelines compute the CPU's images."""

import copy
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.testing import assert_close

from tests.clients.comparison import DEVICE, assert_same, assert_trains_alike, on_device

SIZE = 16


def unet() -> Any:
    return diffusers.UNet2DModel(
        sample_size=SIZE,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=4,
    )


def conditional_unet() -> Any:
    return diffusers.UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        norm_num_groups=4,
        attention_head_dim=4,
    )


def autoencoder() -> Any:
    return diffusers.AutoencoderKL(
        in_channels=3,
        out_channels=3,
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        latent_channels=4,
        norm_num_groups=4,
        sample_size=SIZE,
    )


def transformer() -> Any:
    return diffusers.DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=10,
        norm_num_groups=4,
    )


def denoising_loss(model: Any, batch: Any) -> Tensor:
    """Computes the loss of one training step. The network predicts the noise that was added."""
    pictures, noise, steps = batch
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=50)
    noisy = scheduler.add_noise(pictures, noise, steps)
    return nn.functional.mse_loss(model(noisy, steps).sample, noise)


def denoising_batch() -> tuple[Tensor, ...]:
    shape = (2, 1, SIZE, SIZE)
    return torch.randn(shape), torch.randn(shape), torch.tensor([3, 40])


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_unet_trains(autocast: torch.dtype | None) -> None:
    tolerance = 1e-4 if autocast is None else 3e-2
    assert_trains_alike(
        unet(), denoising_batch(), denoising_loss, rtol=tolerance, atol=tolerance, autocast=autocast
    )


def test_unet_trains_with_recomputation() -> None:
    model = unet().train()
    model.enable_gradient_checkpointing()
    assert_trains_alike(model, denoising_batch(), denoising_loss, steps=1)


def test_average_of_weights() -> None:
    model = unet()
    averages = []
    for m in (on_device(model), model):
        average = diffusers.training_utils.EMAModel(m.parameters(), decay=0.9)
        average.to(next(m.parameters()).device)
        for _ in range(3):
            with torch.no_grad():
                for parameter in m.parameters():
                    parameter.mul_(0.9)
            average.step(m.parameters())
        averages.append(average.shadow_params)
    for ours, theirs in zip(*averages, strict=True):
        assert_same(ours, theirs)


def test_autoencoder_trains() -> None:
    def loss(model: Any, pictures: Tensor) -> Tensor:
        posterior = model.encode(pictures).latent_dist
        rebuilt = model.decode(posterior.mode()).sample
        divergence: Tensor = posterior.kl().mean()
        return nn.functional.mse_loss(rebuilt, pictures) + divergence * 1e-3

    assert_trains_alike(autoencoder(), torch.randn(2, 3, SIZE, SIZE), loss, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["conditional_unet", "transformer"])
def test_conditional_models_train(kind: str) -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        x, steps, condition = batch
        classes = {"class_labels": steps}
        conditions = {"encoder_hidden_states": condition}
        settings = classes if kind == "transformer" else conditions
        result: Tensor = model(x, timestep=steps, **settings).sample
        return result.square().mean()

    model = {"conditional_unet": conditional_unet, "transformer": transformer}[kind]()
    model.eval()  # in training mode, the model drops random labels
    batch = torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.randn(2, 5, 32)
    assert_trains_alike(model, batch, loss, rtol=1e-3, atol=1e-4)


SCHEDULERS = [
    "DDIMScheduler",
    "PNDMScheduler",
    "EulerDiscreteScheduler",
    "HeunDiscreteScheduler",
    "LMSDiscreteScheduler",
    "DPMSolverMultistepScheduler",
    "UniPCMultistepScheduler",
    "FlowMatchEulerDiscreteScheduler",
]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_denoises(name: str) -> None:
    """Schedulers that add no noise compute the same result on the device as on the CPU."""
    model, start = unet().eval(), torch.randn(1, 1, SIZE, SIZE)
    pictures = []
    for m in (on_device(model), model):
        scheduler = getattr(diffusers, name)()
        place = next(m.parameters()).device
        scheduler.set_timesteps(5, device=place)
        x = start.to(place) * getattr(scheduler, "init_noise_sigma", 1.0)
        with torch.no_grad():
            for step in scheduler.timesteps:
                scaled = x
                if hasattr(scheduler, "scale_model_input"):
                    scaled = scheduler.scale_model_input(x, step)
                x = scheduler.step(m(scaled, step).sample, step, x).prev_sample
        pictures.append(x)
    assert_same(*pictures, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["DDPMScheduler", "EulerAncestralDiscreteScheduler"])
def test_denoises_with_noise(name: str) -> None:
    """Schedulers that add noise compute the CPU's result if a CPU generator draws the noise."""
    model, start = unet().eval(), torch.randn(1, 1, SIZE, SIZE)
    pictures = []
    for m in (on_device(model), model):
        scheduler = getattr(diffusers, name)()
        place = next(m.parameters()).device
        scheduler.set_timesteps(5, device=place)
        x = start.to(place) * getattr(scheduler, "init_noise_sigma", 1.0)
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for step in scheduler.timesteps:
                noise = m(scheduler.scale_model_input(x, step), step).sample
                x = scheduler.step(noise, step, x, generator=generator).prev_sample
        pictures.append(x)
    assert_same(*pictures, rtol=1e-3, atol=1e-3)


def test_unconditional_pipeline() -> None:
    pictures = []
    model = unet().eval()
    for place in ("openreg", "cpu"):
        pipeline = diffusers.DDIMPipeline(copy.deepcopy(model), diffusers.DDIMScheduler()).to(place)
        pipeline.set_progress_bar_config(disable=True)
        assert pipeline.device.type == place
        generator = torch.Generator().manual_seed(0)
        found = pipeline(
            num_inference_steps=4, generator=generator, output_type="np", batch_size=2, eta=0.5
        )
        pictures.append(torch.from_numpy(found.images))
    assert_close(*pictures, rtol=1e-3, atol=1e-3)


def stable_diffusion() -> Any:
    text = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=99,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=8,
        )
    ).eval()
    pipeline = diffusers.StableDiffusionPipeline(
        vae=autoencoder().eval(),
        text_encoder=text,
        tokenizer=None,
        unet=conditional_unet().eval(),
        scheduler=diffusers.DDIMScheduler(
            beta_schedule="scaled_linear", clip_sample=False, set_alpha_to_one=False
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def picture(pipeline: Any, prompt: Tensor, empty: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    found = pipeline(
        prompt_embeds=prompt,
        negative_prompt_embeds=empty,
        num_inference_steps=3,
        generator=generator,
        output_type="np",
        height=16,
        width=16,
    )
    return torch.from_numpy(found.images)


@pytest.mark.parametrize("offload", [None, "model", "sequential"])
def test_stable_diffusion(offload: str | None) -> None:
    """Images are equal, whether all networks stay on the device or move there one at a time."""
    reference = stable_diffusion()
    prompt, empty = torch.randn(1, 8, 32), torch.randn(1, 8, 32)
    expected = picture(reference, prompt, empty)
    if offload == "model":
        reference.enable_model_cpu_offload(device="openreg")
    elif offload == "sequential":
        reference.enable_sequential_cpu_offload(device="openreg")
    else:
        reference.to("openreg")
    found = picture(reference, prompt.to(DEVICE), empty.to(DEVICE))
    assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_saves_and_loads(tmp_path: Path) -> None:
    model = unet().eval()
    x, step = torch.randn(1, 1, SIZE, SIZE), torch.tensor([5])
    on_device(model).save_pretrained(tmp_path)
    with torch.no_grad():
        theirs = model(x, step).sample
        moved = diffusers.UNet2DModel.from_pretrained(tmp_path).to(DEVICE)
        assert_same(moved(x.to(DEVICE), step.to(DEVICE)).sample, theirs, rtol=1e-4, atol=1e-4)
        placed = diffusers.UNet2DModel.from_pretrained(tmp_path, device_map={"": "openreg:0"})
        assert_same(placed(x.to(DEVICE), step.to(DEVICE)).sample, theirs, rtol=1e-4, atol=1e-4)
