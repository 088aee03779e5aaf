"""Every architecture of transformers that runs here from a small config, with random weights.

Those that need no more than small sizes are a list of names; the others stand in ``transformers_special.py``.
Missing are those that need a package that is not here (timm, natten, detectron2), and some whose sizes cannot be
made small through their config.
"""

from __future__ import annotations

from functools import partial

import transformers
from transformers import MODEL_MAPPING

from tests.zoo.example_inputs import inputs_for
from tests.zoo.specimen import Built, Specimen
from tests.zoo.tiny_configs import tiny_config
from tests.zoo.transformers_special import NOT_TRAINED, SPECIALS, Special

_PLAIN = """
    afmoe aimv2_vision_model albert apertus arcee aria_text axk1 axk2 bart beam beit bert bert-generation big_bird
    bigbird_pegasus biogpt bit bitnet blenderbot blenderbot-small blip bloom camembert canine
    chinese_clip_vision_model clip clip_text_model clip_vision_model clipseg cohere cohere2 cohere2_moe convbert
    cpmant ctrl cvt cwm data2vec-audio data2vec-text data2vec-vision deberta deberta-v2 deepseek_v2 deepseek_v3
    deepseek_v32 deepseek_v4 deit diffllama dinov2 dinov2_with_registers dinov3_convnext dinov3_vit distilbert doge
    dots1 dots3_note_text dpr dpt electra embedding_gemma2 embedding_gemma2_text ernie ernie4_5 ernie4_5_moe esm
    esmc eurobert evolla exaone4 exaone_moe falcon falcon_h1 falcon_mamba fastspeech2_conformer flava flex_olmo
    flint fnet focalnet fsmt funnel gemma gemma2 gemma3_text gemma4_unified gemma4_unified_text git glm glm4
    glm4_moe glm4_moe_lite glm_moe_dsa glmasr_encoder glpn gpt-sw3 gpt2 gpt_bigcode gpt_neox gpt_neox_japanese
    gpt_oss granite granite_docling granite_docling_text granite_docling_vision granite_speech5_ctc
    granite_speech5_encoder granite_swa granitemoe granitemoe_swa granitemoeshared gte helium hgnet_v2 hiera
    higgs_audio_v2 hrm_text hubert hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 hyperclovax ibert idefics3_vision
    ijepa imagegpt inkling2_text inkling_text internlm3 internvl_vision iquestcoder jais2 jetmoe jina_embeddings_v3
    kolibri1 kosmos-2.5 laguna layoutlm led lfm2 llama llama4 llama4_text longcat_flash longformer longt5 luke
    m2m_100 mamba marian markuplm mbart megatron-bert mellum minicpm3 minimax minimax_m2 minimax_m3_vl
    minimax_m3_vl_text ministral ministral3 mistral mistral4 mistral_large4_text mixtral mlcd mlcd_vision_model
    mllama mobilebert mobilenet_v1 mobilenet_v2 mobilevit modernbert modernbert-decoder molmo2_text moonshine moshi
    mpnet mpt mra mt5 muse_glimmer muse_glimmer_text muse_spark_text mvp nanochat nemotron nemotron_h nllb-moe
    nomic_bert nystromformer olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt openai_privacy_filter opt pegasus
    pegasus_x persimmon phi phi3 phi4_multimodal phimoe pixio pixtral plbart poolformer pp_ocrv6_small_rec
    pp_ocrv6_tiny_rec prophetnet pvt pvt_v2 qianfan_ocr_vision qwen2 qwen2_moe qwen3 qwen3_moe
    qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text radio regnet rembert resnet rf_detr
    roberta roberta-prelayernorm roc_bert roformer rwkv sam3_lite_text_text_model sam3_vit_model sam_hq_vision_model
    sam_vision_model sapiens2 seed_oss segformer sew sew-d siglip siglip_vision_model smollm3 smolvlm_vision
    solar_open splinter squeezebert stablelm starcoder2 swiftformer switch_transformers t5 t5gemma tapas textnet
    tipsv2 tipsv2_text_model tipsv2_vision_model ultrabert umt5 unispeech unispeech-sat unlimited_ocr vaultgemma
    vilt visual_bert vit vit_mae vit_msn vitdet vits voxtral_realtime_encoder wav2vec2 wav2vec2-conformer wavlm xglm
    xlm-roberta xlm-roberta-xl xlnet yolos yoso aria audioflamingo3 aya_vision cohere2_vision cosmos3_omni
    deepseek_vl deepseek_vl_hybrid exaone4_5 fuyu gemma3 glmasr got_ocr2 granite_speech granite_speech_plus
    hyperclovax_vision_v2 idefics2 idefics3 internvl kimi_k25 lfm2_vl lighton_ocr llava llava_next llava_next_video
    llava_onevision mistral3 mistral_large4 modernvbert moss_transcribe_diarize musicflamingo ovis2 paligemma
    qianfan_ocr qwen2_audio qwen3_asr sam3_vision_model smolvlm t5gemma2 ultravbert video_llama_3 video_llava
    vipllava voxtral
""".split()

# One of each kind, for the tier that runs with every `make test`.
_QUICK = frozenset(
    "gpt2 bert llama t5 mixtral mamba rwkv vit clip wav2vec2 whisper detr qwen2_vl deepseek_v3 recurrent_gemma".split()
)


def build(model_type: str) -> Built:
    """A small model of the family, and inputs for it."""
    special = SPECIALS.get(model_type, Special())
    config = tiny_config(model_type, **special.config)
    if special.model is not None:
        model_class = getattr(transformers, special.model)
    else:
        model_class = MODEL_MAPPING[type(config)]
        model_class = model_class[0] if isinstance(model_class, (tuple, list)) else model_class
    model = model_class(config)
    return model, inputs_for(model) if special.inputs is None else special.inputs()


SPECIMENS = [
    Specimen(
        name,
        "transformers",
        partial(build, name),
        quick=name in _QUICK,
        trains=name not in NOT_TRAINED,
        why=NOT_TRAINED.get(name, ""),
    )
    for name in sorted({*_PLAIN, *SPECIALS})
]
