"""Architectures of transformers that need more said than their name: sizes that must fit, or inputs of their kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.zoo.example_inputs import ids, ids_with, image, video

Inputs = Callable[[], dict[str, Any]]

_RESNET: dict[str, Any] = {
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1],
    "out_features": ["stage2", "stage3", "stage4"],
}  # fmt: skip
_DETR: dict[str, Any] = {"backbone_config": {**_RESNET, "out_features": ["stage4"]}}
_SWIN: dict[str, Any] = {
    "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4,
}  # fmt: skip
_SERIES: dict[str, Any] = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "d_model": 16}


@dataclass(frozen=True)
class Special:
    """What a family needs on top of small sizes."""

    config: dict[str, Any] = field(default_factory=dict)  # fields of the config
    inputs: Inputs | None = None  # None: those that its forward asks for
    model: str | None = None  # class of the model where it is not the usual one: "DetrForObjectDetection"


def _pixels(size: int = 32, channels: int = 3, **more: Any) -> Inputs:
    return lambda: {"pixel_values": image(size, channels), **more}


def _series() -> dict[str, Any]:
    return {
        "past_values": torch.randn(2, 10),
        "past_time_features": torch.randn(2, 10, 1),
        "past_observed_mask": torch.ones(2, 10),
        "future_values": torch.randn(2, 4),
        "future_time_features": torch.randn(2, 4, 1),
    }


def _detector(size: int = 64) -> Special:
    return Special(
        _DETR | {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}, _pixels(size)
    )


SPECIALS: dict[str, Special] = {
    # vision
    "swin": Special(_SWIN),
    "swinv2": Special(_SWIN),
    "donut-swin": Special(_SWIN),
    "maskformer-swin": Special(_SWIN),
    "convnext": Special({"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]}, _pixels(64)),
    "convnextv2": Special({"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]}, _pixels(64)),
    "efficientnet": Special({"width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 128}, _pixels(64)),
    "mobilenet_v1": Special({"image_size": 64}, _pixels(64)),
    "vivit": Special({"num_frames": 4, "tubelet_size": [2, 8, 8]}, lambda: {"pixel_values": video()}),
    "videomae": Special({"num_frames": 4}, lambda: {"pixel_values": video()}),
    "timesformer": Special({"num_frames": 4}, lambda: {"pixel_values": video()}),
    "vjepa2": Special(
        {
            "crop_size": 32,
            "frames_per_clip": 4,
            "pred_hidden_size": 32,
            "pred_num_attention_heads": 4,
            "pred_num_hidden_layers": 2,
        },
        lambda: {"pixel_values_videos": video()},
    ),
    "mgp-str": Special({"image_size": [32, 32]}),
    "layoutlmv3": Special(
        {"input_size": 32, "coordinate_size": 6, "shape_size": 4},
        lambda: {"input_ids": ids(), "bbox": torch.zeros(1, 12, 4, dtype=torch.long), "pixel_values": image()},
    ),
    "superpoint": Special({}, _pixels(64), "SuperPointForKeypointDetection"),
    "seggpt": Special(
        {"image_size": [64, 32], "merge_index": 0, "intermediate_hidden_state_indices": [1], "decoder_hidden_size": 8},
        lambda: {
            "pixel_values": torch.randn(1, 3, 32, 32),
            "prompt_pixel_values": torch.randn(1, 3, 32, 32),
            "prompt_masks": torch.randn(1, 3, 32, 32),
        },
    ),
    # detection and segmentation
    "detr": _detector(),
    "conditional_detr": _detector(),
    "dab-detr": _detector(),
    "table-transformer": _detector(),
    "rt_detr": Special(
        {
            "backbone_config": {
                "model_type": "rt_detr_resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 16, 16, 32],
                "depths": [1, 1, 1, 1],
                "out_features": ["stage2", "stage3", "stage4"],
            },
            "encoder_in_channels": [16, 16, 32],
            "feat_strides": [8, 16, 32],
            "encoder_hidden_dim": 32,
            "decoder_in_channels": [32, 32, 32],
        },
        _pixels(64),
    ),
    "rt_detr_v2": Special(
        {
            "backbone_config": {
                "model_type": "rt_detr_resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 16, 16, 32],
                "depths": [1, 1, 1, 1],
                "out_features": ["stage2", "stage3", "stage4"],
            },
            "encoder_in_channels": [16, 16, 32],
            "feat_strides": [8, 16, 32],
            "encoder_hidden_dim": 32,
            "decoder_in_channels": [32, 32, 32],
        },
        _pixels(64),
    ),
    "mask2former": Special(
        {
            "feature_size": 32,
            "backbone_config": {
                "model_type": "swin",
                **_SWIN,
                "depths": [1, 1, 1, 1],
                "num_heads": [1, 2, 2, 2],
                "out_features": ["stage1", "stage2", "stage3", "stage4"],
            },
        },
        _pixels(64),
    ),
    "maskformer": Special(
        {
            "fpn_feature_size": 32,
            "mask_feature_size": 32,
            "decoder_config": {"model_type": "detr"},
            "backbone_config": {
                "model_type": "swin",
                **_SWIN,
                "depths": [1, 1, 1, 1],
                "num_heads": [1, 2, 2, 2],
                "out_features": ["stage1", "stage2", "stage3", "stage4"],
            },
        },
        _pixels(64),
    ),
    "owlvit": Special({}, lambda: {"input_ids": ids(), "pixel_values": image()}),
    "owlv2": Special({}, lambda: {"input_ids": ids(), "pixel_values": image()}),
    "sam": Special(
        {
            "vision_config": {"output_channels": 32, "image_size": 64, "window_size": 2, "num_pos_feats": 16},
            "prompt_encoder_config": {"image_size": 64, "patch_size": 8, "image_embedding_size": 8},
            "mask_decoder_config": {},
        },
        lambda: {"pixel_values": image(64), "input_points": torch.rand(1, 1, 2, 2) * 60},
    ),
    # two towers and more
    "metaclip_2": Special({}, lambda: {"input_ids": ids(), "pixel_values": image()}),
    "chinese_clip": Special({}, lambda: {"input_ids": ids(), "pixel_values": image()}),
    "altclip": Special({}, lambda: {"input_ids": ids(), "pixel_values": image()}),
    "aimv2": Special({}, lambda: {"input_ids": ids(), "pixel_values": image()}),
    "groupvit": Special(
        {"vision_config": {"num_group_tokens": [8, 4, 0], "num_output_groups": [8, 4, 4], "depths": [1, 1, 1]}},
        lambda: {"input_ids": ids(), "pixel_values": image()},
    ),
    "lxmert": Special(
        {"visual_feat_dim": 16},
        lambda: {"input_ids": ids(), "visual_feats": torch.randn(1, 5, 16), "visual_pos": torch.rand(1, 5, 4)},
    ),
    "udop": Special({}, lambda: {"input_ids": ids(), "bbox": torch.rand(1, 12, 4), "decoder_input_ids": ids(6)}),
    "kosmos-2": Special(
        {"latent_query_num": 4},
        lambda: {
            "input_ids": ids(),
            "pixel_values": image(),
            "image_embeds_position_mask": torch.tensor([[0] + [1] * 4 + [0] * 7]),
        },
    ),
    "idefics": Special(
        {"vision_config": {"embed_dim": 32}, "cross_layer_interval": 1},
        lambda: {
            "input_ids": ids(),
            "pixel_values": video(1),
            "image_attention_mask": torch.ones(1, 12, 1, dtype=torch.long),
        },
    ),
    # an image among the tokens
    "llava": Special(
        {"image_token_id": 95, "image_token_index": 95, "vision_feature_layer": -1},
        lambda: {"input_ids": ids_with(95, 16), "pixel_values": image()},
    ),
    "paligemma": Special(
        {"image_token_id": 95, "image_token_index": 95},
        lambda: {
            "input_ids": ids_with(95, 16),
            "pixel_values": image(),
            "token_type_ids": torch.zeros(1, 22, dtype=torch.long),
        },
    ),
    "gemma3": Special(
        {"image_token_id": 95, "image_token_index": 95, "mm_tokens_per_image": 4},
        lambda: {
            "input_ids": ids_with(95, 4),
            "pixel_values": image(),
            "token_type_ids": torch.zeros(1, 10, dtype=torch.long),
        },
    ),
    "qwen2_vl": Special(
        {
            "image_token_id": 95,
            "vision_config": {"embed_dim": 32, "depth": 2, "hidden_size": 32, "patch_size": 8},
            "text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
        },
        lambda: {
            "input_ids": ids_with(95, 4),
            "pixel_values": torch.randn(16, 3 * 2 * 8 * 8),
            "image_grid_thw": torch.tensor([[1, 4, 4]]),
            "mm_token_type_ids": torch.tensor([[0] * 3 + [1] * 4 + [0] * 3]),
        },
    ),
    "qwen3_vl": Special(
        {
            "image_token_id": 95,
            "vision_config": {"num_position_embeddings": 16, "deepstack_visual_indexes": [0], "patch_size": 8},
            "text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
        },
        lambda: {
            "input_ids": ids_with(95, 4),
            "pixel_values": torch.randn(16, 3 * 2 * 8 * 8),
            "image_grid_thw": torch.tensor([[1, 4, 4]]),
            "mm_token_type_ids": torch.tensor([[0] * 3 + [1] * 4 + [0] * 3]),
        },
    ),
    "idefics3": Special(
        {"image_token_id": 95, "scale_factor": 2}, lambda: {"input_ids": ids_with(95, 4), "pixel_values": video(1)}
    ),
    "internvl": Special(
        {"image_token_id": 95, "vision_config": {"image_size": [32, 32], "patch_size": [8, 8]}},
        lambda: {"input_ids": ids_with(95, 4), "pixel_values": image()},
    ),
    # text
    "jamba": Special({"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4, "use_mamba_kernels": False}),
    "bamba": Special({"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "attn_layer_indices": [1]}),
    "mamba2": Special({"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8}),
    "granitemoehybrid": Special(
        {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "layer_types": ["mamba", "attention"]}
    ),
    "recurrent_gemma": Special({"num_hidden_layers": 3, "attention_window_size": 16}),
    "qwen3_next": Special(
        {
            "num_hidden_layers": 4,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        }
    ),
    "qwen3_5_text": Special(
        {
            "num_hidden_layers": 4,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        }
    ),
    "lfm2_moe": Special({"layer_types": ["conv", "full_attention"], "num_dense_layers": 1}),
    "gpt_neo": Special({"attention_types": [[["global", "local"], 1]], "num_layers": 2}),
    "gptj": Special({"rotary_dim": 4}),
    "codegen": Special({"rotary_dim": 4}),
    "dbrx": Special(
        {
            "attn_config": {"clip_qkv": 8.0, "kv_n_heads": 2, "rope_theta": 1e4},
            "ffn_config": {"ffn_hidden_size": 32, "hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
        }
    ),
    "flaubert": Special({"emb_dim": 32, "n_words": 99}),
    "xlm": Special({"emb_dim": 32, "n_words": 99}),
    "xmod": Special({"default_language": "en_XX", "languages": ["en_XX"]}),
    "reformer": Special(
        {
            "axial_pos_embds_dim": [8, 24],
            "axial_pos_shape": [4, 4],
            "attention_head_size": 8,
            "attn_layers": ["local", "lsh"],
            "num_buckets": 2,
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "max_position_embeddings": 16,
            "is_decoder": True,
        },
        lambda: {"input_ids": ids(16)},
    ),
    "perceiver": Special(
        {"num_latents": 8, "d_latents": 16, "d_model": 16, "num_self_attends_per_block": 2, "num_blocks": 1},
        lambda: {"inputs": torch.randn(1, 10, 16)},
    ),
    "decision_transformer": Special(
        {"state_dim": 5, "act_dim": 2},
        lambda: {
            "states": torch.randn(1, 4, 5),
            "actions": torch.randn(1, 4, 2),
            "rewards": torch.randn(1, 4, 1),
            "returns_to_go": torch.randn(1, 4, 1),
            "timesteps": torch.arange(4)[None],
            "attention_mask": torch.ones(1, 4),
        },
    ),
    # audio
    "whisper": Special({"max_source_positions": 32, "max_target_positions": 32}),
    "audio-spectrogram-transformer": Special(
        {"max_length": 32, "num_mel_bins": 16}, lambda: {"input_values": torch.randn(1, 32, 16)}
    ),
    "speech_to_text": Special(
        {"input_feat_per_channel": 16, "conv_channels": 32, "max_source_positions": 64},
        lambda: {"input_features": torch.randn(1, 64, 16), "decoder_input_ids": ids(6)},
    ),
    "wav2vec2-bert": Special(
        {"feature_projection_input_dim": 16, "output_hidden_size": 32},
        lambda: {"input_features": torch.randn(1, 64, 16)},
    ),
    "encodec": Special({"num_filters": 4}, lambda: {"input_values": torch.randn(1, 1, 640)}),
    "dac": Special(
        {"encoder_hidden_size": 8, "decoder_hidden_size": 32, "hidden_size": 128},
        lambda: {"input_values": torch.randn(1, 1, 2048)},
    ),
    "mimi": Special(
        {
            "num_filters": 8,
            "upsample_groups": 32,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
            "num_attention_heads": 4,
        },
        lambda: {"input_values": torch.randn(1, 1, 4000)},
    ),
    "univnet": Special(
        {"model_in_channels": 8, "num_mel_bins": 16, "model_hidden_channels": 8, "kernel_predictor_hidden_channels": 8},
        lambda: {"input_features": torch.randn(1, 16, 16), "noise_sequence": torch.randn(1, 16, 8)},
    ),
    # time series
    "time_series_transformer": Special(_SERIES | {"num_time_features": 1}, _series),
    "informer": Special(_SERIES | {"num_time_features": 1}, _series),
    "autoformer": Special(_SERIES | {"num_time_features": 1, "moving_average": 3, "label_length": 2}, _series),
    "patchtst": Special(
        {"context_length": 16, "patch_length": 4, "patch_stride": 4, "num_input_channels": 2},
        lambda: {"past_values": torch.randn(2, 16, 2)},
    ),
    "patchtsmixer": Special(
        {"context_length": 16, "patch_length": 4, "patch_stride": 4, "num_input_channels": 2},
        lambda: {"past_values": torch.randn(2, 16, 2)},
    ),
}

_ONE_PIXEL = "it normalises one value per channel, which torch refuses in training"
NOT_TRAINED: dict[str, str] = {
    "fastspeech2_conformer": "it wants labels in training",
    "groupvit": _ONE_PIXEL,
    "mobilenet_v1": _ONE_PIXEL,
    "mobilenet_v2": _ONE_PIXEL,
    "mobilevit": _ONE_PIXEL,
    "swiftformer": _ONE_PIXEL,
    "reformer": "it takes a seed from the clock in training, so two plain runs differ",
}
