"""Configs of transformers, made small: the architecture stays, its sizes shrink.

Fields are shrunk by name, in nested configs too. What a family needs on top is said where it is listed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

VOCABULARY = 99
WIDTH = 32
HEADS = 4
LAYERS = 2
IMAGE_SIZE = 32
PATCH_SIZE = 8

_WIDTHS = """hidden_size d_model n_embd embed_dim dim decoder_hidden_size output_hidden_size projection_dim
    hidden_dim embedding_size projector_hidden_size out_hidden_size encoder_hidden_dim shared_expert_intermediate_size
    classifier_proj_size codebook_dim tdnn_dim xvector_output_dim lru_width fpn_hidden_size fusion_hidden_size
    text_embed_dim image_embed_dim bottleneck_features reassemble_hidden_size vision_hidden_size
    encoder_hidden_size width d_embed mask_feature_size feature_size decoder_hidden_dim embedding_dim
    projection_hidden_size entity_emb_size intermediate_channels mm_hidden_size""".split()
_FEED_FORWARD = """intermediate_size encoder_ffn_dim decoder_ffn_dim ffn_dim d_ff n_inner dim_feedforward
    moe_intermediate_size shared_intermediate_size decoder_intermediate_size encoder_intermediate_size
    expert_ffn_hidden_size ffn_hidden_size d_inner ffn_size block_ff_dim mlp_dim
    encoder_feedforward_dim decoder_feedforward_dim dense_intermediate_size
    moe_shared_expert_intermediate_size""".split()
_LAYERS = """num_hidden_layers encoder_layers decoder_layers num_layers n_layer n_layers depth num_decoder_layers
    num_encoder_layers encoder_num_layers decoder_num_layers decoder_num_hidden_layers num_blocks
    text_layers""".split()
_HEADS = """num_attention_heads encoder_attention_heads decoder_attention_heads num_heads n_head n_heads
    decoder_num_attention_heads encoder_num_attention_heads num_encoder_attention_heads num_key_value_heads
    num_decoder_attention_heads""".split()
_POSITIONS = """max_position_embeddings n_positions max_source_positions max_target_positions
    encoder_max_position_embeddings max_seq_len block_length""".split()

SIZES: dict[str, int] = {
    **dict.fromkeys(_WIDTHS, WIDTH),
    **dict.fromkeys(_FEED_FORWARD, 2 * WIDTH),
    **dict.fromkeys(_LAYERS, LAYERS),
    **dict.fromkeys(_HEADS, HEADS),
    **dict.fromkeys(_POSITIONS, 128),
    "vocab_size": VOCABULARY,
    "image_size": IMAGE_SIZE,
    "patch_size": PATCH_SIZE,
    "head_dim": WIDTH // HEADS,
    "d_kv": WIDTH // HEADS,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_queries": 5,
    "num_mel_bins": 16,
    "state_size": 8,
    "ssm_state_size": 8,
    "mamba_d_state": 8,
    "num_frames": 4,
    "codebook_size": 32,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}


def tiny_config(model_type: str, **given: Any) -> PreTrainedConfig:
    """The config of a family with small sizes; what is given replaces them, ``dict`` for nested configs."""
    return shrink(CONFIG_MAPPING[model_type], **given)


def shrink(config_class: Any, **given: Any) -> PreTrainedConfig:
    """As above, for a class of configs."""
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    sizes = {name: size for name, size in SIZES.items() if name in fields and _is_number(config_class, fields[name])}
    for name, sub_class in getattr(config_class, "sub_configs", {}).items():
        inner = given.pop(name, {})
        if isinstance(inner, PreTrainedConfig):
            given[name] = inner
        elif "model_type" in inner:
            given[name] = tiny_config(**inner)
        elif _is_open(sub_class):
            usual = getattr(config_class(), name, None)
            if isinstance(usual, PreTrainedConfig):
                given[name] = shrink(type(usual), **inner)
        elif dataclasses.is_dataclass(sub_class):
            given[name] = shrink(sub_class, **inner)
    return config_class(**{**sizes, **given})


def _is_number(config_class: Any, field: Any) -> bool:
    default = getattr(config_class, field.name, None)
    return default is None or (isinstance(default, int) and not isinstance(default, bool))


def _is_open(sub_class: Any) -> bool:
    """Is the nested config of any family?"""
    return sub_class.__name__ in {"AutoConfig", "PreTrainedConfig"}
