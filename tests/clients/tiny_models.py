# SPDX-License-Identifier: BSD-3-Clause
"""Creates transformers models with about ten thousand random weights, from configurations.

No model uses dropout, because random numbers differ between devices.
"""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

VOCABULARY = 99

_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_SPECIAL_TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# The initial weights are larger than usual. Generated tokens therefore differ from each other and
# do not depend on rounding errors.
_TEXT = _SIZES | _SPECIAL_TOKENS
_TEXT |= {"vocab_size": VOCABULARY, "max_position_embeddings": 64, "initializer_range": 0.3}
_DECODER = _TEXT | {"num_key_value_heads": 2, "head_dim": 8}
_SEQ2SEQ = _SPECIAL_TOKENS | {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "dropout": 0.0,
    "init_std": 0.3,
    "decoder_start_token_id": 1,
}
_NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_IMAGE = _SIZES | {"image_size": 32, "patch_size": 8}

#: A model on the CPU, and a batch that includes labels.
Example = tuple[Any, dict[str, Any]]


def tokens(*shape: int) -> Tensor:
    """Returns random tokens, none of which is a special token."""
    return torch.randint(3, VOCABULARY, shape)


def images() -> Tensor:
    """Returns two random images of 32 by 32 pixels."""
    return torch.randn(2, 3, 32, 32)


def decoder(family: str, **settings: Any) -> Any:
    """Returns a decoder of a model family with a language modeling head."""
    config = getattr(transformers, f"{family}Config")(**(_DECODER | settings))
    return getattr(transformers, f"{family}ForCausalLM")(config)


def gpt2(**settings: Any) -> Any:
    """Returns GPT-2. Its configuration uses different names from those of the other decoders."""
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        **sizes,
        **dropout,
        **_SPECIAL_TOKENS,
        initializer_range=0.3,
        **settings,
    )
    return transformers.GPT2LMHeadModel(config)


#: Models that generate text from text.
DECODERS: dict[str, Callable[[], Any]] = {
    "llama": lambda: decoder("Llama"),
    "mistral": lambda: decoder("Mistral", sliding_window=8),
    "qwen2": lambda: decoder("Qwen2"),
    "gemma": lambda: decoder("Gemma"),
    "gemma2": lambda: decoder("Gemma2"),
    "phi3": lambda: decoder("Phi3"),
    "gpt2": gpt2,
    # Mixture-of-experts models. They count the tokens per expert with an integer histogram.
    "mixtral": lambda: decoder("Mixtral", num_local_experts=4),
    "qwen3_moe": lambda: decoder(
        "Qwen3Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "gpt_oss": lambda: decoder("GptOss", num_local_experts=4, num_experts_per_tok=2),
}


def bert(head: str = "SequenceClassification") -> Any:
    """Returns BERT with the given head."""
    return getattr(transformers, f"BertFor{head}")(transformers.BertConfig(**_TEXT, **_NO_DROPOUT))


def t5() -> Any:
    """Returns T5, an encoder and a decoder with relative positions."""
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def bart() -> Any:
    """Returns BART, an encoder and a decoder with absolute positions."""
    config = transformers.BartConfig(
        **_SEQ2SEQ, max_position_embeddings=64, forced_eos_token_id=None
    )
    return transformers.BartForConditionalGeneration(config)


def whisper() -> Any:
    """Returns Whisper, which transcribes spectrograms of speech."""
    config = transformers.WhisperConfig(
        **_SEQ2SEQ,
        max_source_positions=50,
        max_target_positions=32,
        num_mel_bins=16,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return transformers.WhisperForConditionalGeneration(config)


def spectrograms() -> Tensor:
    """Returns a batch of random spectrograms for Whisper."""
    return torch.randn(2, 16, 100)


def _wav2vec2() -> Example:
    features = {"conv_dim": (16, 16, 16), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3)}
    dropout = dict.fromkeys(
        ["hidden_dropout", "attention_dropout", "activation_dropout", "final_dropout", "layerdrop"],
        0.0,
    )
    config = transformers.Wav2Vec2Config(
        **_SIZES,
        **features,
        **dropout,
        vocab_size=VOCABULARY,
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        feat_proj_dropout=0.0,
        mask_time_prob=0.0,
        ctc_loss_reduction="mean",
    )
    return transformers.Wav2Vec2ForCTC(config), {
        "input_values": torch.randn(2, 4000),
        "labels": tokens(2, 5),
    }


def _clip() -> Example:
    config = transformers.CLIPConfig(text_config=_TEXT, vision_config=_IMAGE, projection_dim=16)
    return transformers.CLIPModel(config), {
        "input_ids": tokens(2, 12),
        "pixel_values": images(),
        "return_loss": True,
    }


def _vit() -> Example:
    config = transformers.ViTConfig(**_IMAGE, **_NO_DROPOUT, num_labels=3)
    return transformers.ViTForImageClassification(config), {
        "pixel_values": images(),
        "labels": torch.tensor([0, 2]),
    }


def _swin() -> Example:
    config = transformers.SwinConfig(
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=4,
        num_labels=3,
        drop_path_rate=0.0,
    )
    return transformers.SwinForImageClassification(config), {
        "pixel_values": images(),
        "labels": torch.tensor([0, 2]),
    }


def _segformer() -> Example:
    config = transformers.SegformerConfig(
        num_encoder_blocks=2,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        sr_ratios=[2, 1],
        strides=[4, 2],
        patch_sizes=[7, 3],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
        num_labels=3,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
    )
    return transformers.SegformerForSemanticSegmentation(config), {
        "pixel_values": images(),
        "labels": torch.randint(3, (2, 32, 32)),
    }


def _sam() -> Example:
    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 32,
            "output_channels": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 64,
            "patch_size": 8,
            "mlp_dim": 64,
            "window_size": 4,
            "global_attn_indexes": [1],
            "num_pos_feats": 8,
        },
        prompt_encoder_config={
            "hidden_size": 16,
            "image_size": 64,
            "patch_size": 8,
            "mask_input_channels": 4,
        },
        mask_decoder_config={
            "hidden_size": 16,
            "mlp_dim": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": 16,
        },
    )
    return transformers.SamModel(config), {
        "pixel_values": torch.randn(2, 3, 64, 64),
        "input_points": torch.rand(2, 1, 2, 2) * 64,
    }


def _detr() -> Example:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=5,
        num_labels=3,
        dropout=0.0,
    )
    labels = [
        {"class_labels": torch.tensor([0, 1]), "boxes": torch.rand(2, 4) * 0.3 + 0.2}
        for _ in range(2)
    ]
    return transformers.DetrForObjectDetection(config), {"pixel_values": images(), "labels": labels}


def _llava() -> Example:
    image_token = VOCABULARY - 1
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_IMAGE, projection_dim=16),
        text_config=transformers.LlamaConfig(**_DECODER),
        image_token_index=image_token,
    )
    text = torch.cat([torch.full((2, 16), image_token), tokens(2, 12).clamp(max=90)], dim=1)
    return transformers.LlavaForConditionalGeneration(config), {
        "input_ids": text,
        "pixel_values": images(),
        "labels": text,
    }


def _mamba() -> Example:
    config = transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, state_size=8, num_hidden_layers=2, expand=2
    )
    text = tokens(2, 12)
    return transformers.MambaForCausalLM(config), {"input_ids": text, "labels": text}


def _distilbert() -> Example:
    config = transformers.DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        dropout=0.0,
        attention_dropout=0.0,
    )
    text = tokens(2, 12)
    return transformers.DistilBertForTokenClassification(config), {
        "input_ids": text,
        "labels": text % 2,
    }


def _roberta() -> Example:
    config = transformers.RobertaConfig(**_TEXT, **_NO_DROPOUT)
    return transformers.RobertaForQuestionAnswering(config), {
        "input_ids": tokens(2, 12),
        "start_positions": torch.tensor([1, 2]),
        "end_positions": torch.tensor([3, 4]),
    }


def _text(make: Callable[[], Any]) -> Callable[[], Example]:
    def example() -> Example:
        text = tokens(2, 12)
        return make(), {"input_ids": text, "labels": text}

    return example


#: The models to train, each with a batch.
EXAMPLES: dict[str, Callable[[], Example]] = {
    **{name: _text(make) for name, make in DECODERS.items()},
    "bert": lambda: (bert(), {"input_ids": tokens(2, 12), "labels": torch.tensor([0, 1])}),
    "bert_masked": _text(lambda: bert("MaskedLM")),
    "t5": _text(t5),
    "bart": _text(bart),
    "whisper": lambda: (whisper(), {"input_features": spectrograms(), "labels": tokens(2, 8)}),
    "wav2vec2": _wav2vec2,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "mamba": _mamba,
    "vit": _vit,
    "swin": _swin,
    "segformer": _segformer,
    "clip": _clip,
    "llava": _llava,
    "sam": _sam,
    "detr": _detr,
}
