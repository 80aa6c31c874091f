/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/formats/config_keys.h"

/* ---- config.json ----------------------------------------------------------------------------- */

const sli_key config_keys_common[] = {
    /* provenance: producer and version */
    {"model_type", {0}},
    {"architectures", {0}},
    {"auto_map", {0}},
    {"transformers_version", {0}},
    {"_name_or_path", {0}},
    {"name_or_path", {0}},
    {"_commit_hash", {0}},
    {"unsloth_*", {0}},
    {"transformers.js_config", {0}},
    {"is_llama_config", {0}},
    {"finetuning_task", {0}},
    /* storage types, and alternative implementations with the same result */
    {"dtype", {0}},
    {"torch_dtype", {0}},
    {"use_bfloat16", {0}},
    {"use_cache", {0}},
    {"torchscript", {0}},
    {"pretraining_tp", {0}},
    {"chunk_size_feed_forward", {0}},
    {"gradient_checkpointing", {0}},
    {"attn_implementation", {0}},
    {"_attn_implementation*", {0}},
    {"_flash_attn_2_enabled", {0}},
    {"use_flash_attention*", {0}},
    {"use_flash_attn", {0}},
    /* outputs of calls */
    {"output_attentions", {0}},
    {"output_hidden_states", {0}},
    {"output_scores", {0}},
    {"return_dict", {0}},
    {"return_dict_in_generate", {0}},
    {"output_router_logits", {0}},
    /* tokens and texts */
    {"bos_token_id", {0}},
    {"eos_token_id", {0}},
    {"pad_token_id", {0}},
    {"sep_token_id", {0}},
    {"unk_token_id", {0}},
    {"mask_token_id", {0}},
    {"cls_token_id", {0}},
    {"decoder_start_token_id", {0}},
    {"bos_token", {0}},
    {"eos_token", {0}},
    {"pad_token", {0}},
    {"tokenizer_class", {0}},
    {"tokenizer_model_max_length", {0}},
    {"tokenizer_padding_side", {0}},
    {"model_max_length", {0}},
    {"max_sequence_length", {0}},
    {"prefix", {0}},
    {"task_specific_params", {0}},
    /* generation settings of older files */
    {"max_length", {0}},
    {"min_length", {0}},
    {"max_new_tokens", {0}},
    {"do_sample", {0}},
    {"early_stopping", {0}},
    {"num_beams", {0}},
    {"num_beam_groups", {0}},
    {"diversity_penalty", {0}},
    {"temperature", {0}},
    {"top_k", {0}},
    {"top_p", {0}},
    {"typical_p", {0}},
    {"repetition_penalty", {0}},
    {"length_penalty", {0}},
    {"no_repeat_ngram_size", {0}},
    {"encoder_no_repeat_ngram_size", {0}},
    {"num_return_sequences", {0}},
    {"bad_words_ids", {0}},
    {"forced_bos_token_id", {0}},
    {"forced_eos_token_id", {0}},
    {"suppress_tokens", {0}},
    {"begin_suppress_tokens", {0}},
    {"exponential_decay_length_penalty", {0}},
    {"remove_invalid_values", {0}},
    {"generation_config", {0}},
    /* classifiers */
    {"id2label", {0}},
    {"label2id", {0}},
    {"num_labels", {0}},
    {"_num_labels", {0}},
    {"problem_type", {0}},
    {"classifier_dropout", {0}},
    {"summary_*", {0}},
    /* training */
    {"initializer_range", {0}},
    {"attention_dropout", {0}},
    {"hidden_dropout", {0}},
    {"attn_pdrop", {0}},
    {"embd_pdrop", {0}},
    {"resid_pdrop", {0}},
    {"router_aux_loss_coef", {0}},
    /* read by all families */
    {"sliding_window", {0}},
    {"use_sliding_window", {0}},
    {"max_window_layers", {0}},
    {"layer_types", {0}},
    {0}};

const sli_key config_keys_gpt2[] = {
    {"activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\"", "\"gelu_fast\""}},
    {"scale_attn_weights", {"true"}},
    {"n_inner", {0}},
    {"tie_word_embeddings", {"true"}},
    {"n_ctx", {0}},
    {"reorder_and_upcast_attn", {0}},
    {0}};

const sli_key config_keys_llama[] = {{"hidden_act", {"\"silu\"", "\"swish\""}},
                                     {"partial_rotary_factor", {"1"}},
                                     {"rope_parameters", {0}},
                                     {"rope_scaling", {0}},
                                     {"rope_theta", {0}},
                                     {"attention_bias", {0}},
                                     {0}};

const sli_key config_keys_chunked[] = {{"dual_chunk_attention_config", {0}}, {0}};
/* The last two keys describe sparse attention for long prompts, which is optional: full attention
 * is computed instead. */
const sli_key config_keys_dual_chunk[] = {{"chunk_size", {0}},
                                          {"local_size", {0}},
                                          {"original_max_position_embeddings", {0}},
                                          {"sparse_attention_enabled", {"true"}},
                                          {"sparse_attention_threshold", {0}},
                                          {0}};

/* Context length before longrope scaling. */
const sli_key config_keys_phi3[] = {{"original_max_position_embeddings", {0}}, {0}};

const sli_key config_keys_gpt_oss[] = {{"swiglu_alpha", {"1.702"}},
                                       {"initial_context_length", {0}},
                                       {"quantization_config", {0}},
                                       {0}};

/* Loss weights are ignored, and so are heads for multi-token prediction. */
const sli_key config_keys_deepseek[] = {{"scoring_func", {"\"sigmoid\""}},
                                        {"topk_method", {"\"noaux_tc\""}},
                                        {"moe_layer_freq", {"1"}},
                                        {"n_shared_experts", {0}},
                                        {"rope_interleave", {0}},
                                        {"num_key_value_heads", {0}},
                                        {"head_dim", {0}},
                                        {"qk_head_dim", {0}},
                                        {"num_nextn_predict_layers", {0}},
                                        {"num_mtp_layers", {0}},
                                        {"ep_size", {0}},
                                        {"aux_loss_alpha", {0}},
                                        {"seq_aux", {0}},
                                        {"quantization_config", {0}},
                                        {0}};

const sli_key config_keys_gemma3[] = {{"hidden_activation", {"\"gelu_pytorch_tanh\""}},
                                      {"rope_parameters", {0}},
                                      {"rope_scaling", {0}},
                                      {"rope_theta", {0}},
                                      {"rope_local_base_freq", {0}},
                                      {"attention_bias", {0}},
                                      {"sliding_window_pattern", {0}},
                                      {"_sliding_window_pattern", {0}},
                                      {"cache_implementation", {0}},
                                      {0}};

/* Initialization of time steps, and choices between equivalent implementations. */
const sli_key config_keys_mamba2[] = {{"hidden_act", {"\"silu\"", "\"swish\""}},
                                      {"use_bias", {"false"}},
                                      {"use_conv_bias", {0}},
                                      {"rms_norm", {"true"}},
                                      {"expand", {0}},
                                      {"chunk_size", {0}},
                                      {"rescale_prenorm_residual", {0}},
                                      {"residual_in_fp32", {0}},
                                      {"time_step_rank", {0}},
                                      {"time_step_limit", {0}},
                                      {"time_step_min", {0}},
                                      {"time_step_max", {0}},
                                      {"time_step_floor", {0}},
                                      {"time_step_init_scheme", {0}},
                                      {"time_step_scale", {0}},
                                      {"layer_norm_epsilon", {0}},
                                      {0}};

const sli_key config_keys_mixtral[] = {{"router_jitter_noise", {"0"}}, {0}};

/* intermediate_size is the width of dense blocks, which this model does not have. */
const sli_key config_keys_qwen2_moe[] = {{"decoder_sparse_step", {"1"}},
                                         {"qkv_bias", {"true"}},
                                         {"router_jitter_noise", {"0"}},
                                         {"intermediate_size", {0}},
                                         {0}};

const sli_key config_keys_qwen3_moe[] = {{"decoder_sparse_step", {"1"}},
                                         {"qkv_bias", {"false"}},
                                         {"router_jitter_noise", {"0"}},
                                         {"shared_expert_intermediate_size", {"0"}},
                                         {"use_qk_norm", {"true"}},
                                         {"intermediate_size", {0}},
                                         {0}};

/* The remaining keys concern text and training. Heads for multi-token prediction are ignored. */
const sli_key config_keys_qwen3_next[] = {{"hidden_act", {"\"silu\"", "\"swish\""}},
                                          {"attention_bias", {0}},
                                          {"rope_parameters", {0}},
                                          {"rope_scaling", {0}},
                                          {"rope_theta", {0}},
                                          {"partial_rotary_factor", {0}},
                                          {"full_attention_interval", {0}},
                                          {"mlp_only_layers", {0}},
                                          {0}};

const sli_key config_keys_rope[] = {{"rope_type", {0}},
                                    {"type", {0}},
                                    {"rope_theta", {0}},
                                    {"factor", {0}},
                                    {"original_max_position_embeddings", {0}},
                                    {"low_freq_factor", {0}},
                                    {"high_freq_factor", {0}},
                                    {"beta_fast", {0}},
                                    {"beta_slow", {0}},
                                    {"attention_factor", {0}},
                                    {"truncate", {"true", "false"}},
                                    {"finetuned", {0}},
                                    {0}};

const sli_key config_keys_rope_mscale[] = {{"mscale", {0}}, {"mscale_all_dim", {0}}, {0}};

const sli_key config_keys_rope_whole[] = {{"partial_rotary_factor", {"1"}}, {0}},
              config_keys_rope_part[] = {{"partial_rotary_factor", {0}}, {0}};

/* ---- GGUF ------------------------------------------------------------------------------------ */

const sli_key gguf_keys_common[] = {{"general.type", {"\"model\""}}, {"general.*", {0}}, {0}};

const sli_key gguf_keys_llama[] = {{"vocab_size", {0}},
                                   {"rope.dimension_count", {0}},
                                   {"attention.value_length", {0}},
                                   {"rope.scaling.finetuned", {0}},
                                   {"rope.scaling.type", {"\"none\"", "\"linear\"", "\"yarn\""}},
                                   {"rope.scaling.factor", {0}},
                                   {"rope.scale_linear", {0}},
                                   {"rope.scaling.original_context_length", {0}},
                                   {"rope.scaling.attn_factor", {0}},
                                   {"rope.scaling.yarn_attn_factor", {"1"}},
                                   {"rope.scaling.yarn_ext_factor", {"1", "-1"}},
                                   {"rope.scaling.yarn_beta_fast", {0}},
                                   {"rope.scaling.yarn_beta_slow", {0}},
                                   {"attention.causal", {"true"}},
                                   {"tensor_data_layout", {"\"Meta AI original pth\""}},
                                   {"pooling_type", {0}},
                                   {"expert_count", {"0"}},
                                   {"expert_used_count", {"0"}},
                                   {"nextn_predict_layers", {"0"}},
                                   {"attention.max_alibi_bias", {"0"}},
                                   {"attention.clamp_kqv", {"0"}},
                                   {0}};
