# Renames what memopt 0.2.0 renames, in a program written for 0.1.0:
#     sed -f upgrade.sed old.c > new.c          (in place: GNU sed -i -f, BSD sed -i '' -f)
# Whole words only. Any POSIX sed will do: the first command puts a newline on both sides of every word, each
# rule looks for a word between two newlines, and the last command takes the newlines away. A field is renamed
# wherever a member of that name is read or set, in structs of yours as well: look at the difference.
s/[A-Za-z_][A-Za-z0-9_]*/\
&\
/g
# Fields whose old name is an ordinary word, where what stands beside them tells whose they are. Not renamed here:
# .rest of memopt_gradient, .most of memopt_schedule_desc, .found of memopt_scaler, .external and .internal of
# memopt_heap_stats, .under of memopt_cuda_clock, and .threads of memopt_optim_desc, now a pointer; the compiler finds
# them.
/\.\nactivation\n/s/\.\nbefore\n =/.pre_activation =/g
s/\.\nkeep\n\( = \nMEMOPT_KEEP_\)/.codec\1/g
s/\.\nslow\n\(\.\nslots\n\)/.offload\1/g
s/\.\nslow\n\(\.\nwrite_cost\n\)/.offload\1/g
s/\.\nslow\n\(\.\nread_cost\n\)/.offload\1/g
s/\.\nslow\n\(\.\nwrite_byte_cost\n\)/.offload\1/g
s/\.\nslow\n\(\.\nread_byte_cost\n\)/.offload\1/g
s/\.\nslow\n\(\.\noverlap\n\)/.offload\1/g
# Two fields where there was one; elsewhere than in such an assignment the compiler finds them.
s/\(\(\n[A-Za-z0-9_]*\n[.>-]*\)*\)\nweights\n = \nMEMOPT_WEIGHTS_SPLIT\n/\1weights = MEMOPT_TYPE_BF16; \1extra = MEMOPT_OPTIM_EXTRA_SPLIT/g
s/\(\(\n[A-Za-z0-9_]*\n[.>-]*\)*\)\nweights\n = \nMEMOPT_WEIGHTS_F32_BF16\n/\1weights = MEMOPT_TYPE_F32; \1extra = MEMOPT_OPTIM_EXTRA_COPY/g
# It is returned by value now.
s/\(\nmemopt_optim_error\n([^()]*)\)->/\1./g
s/\nMEMOPT_ADAMW\n/MEMOPT_OPTIM_ADAMW/g
s/\nMEMOPT_ADAM\n/MEMOPT_OPTIM_ADAM/g
s/\nMEMOPT_SGD\n/MEMOPT_OPTIM_SGD/g
s/\nMEMOPT_LION\n/MEMOPT_OPTIM_LION/g
s/\nMEMOPT_LARS\n/MEMOPT_OPTIM_LARS/g
s/\nMEMOPT_LAMB\n/MEMOPT_OPTIM_LAMB/g
s/\nMEMOPT_ADAFACTOR\n/MEMOPT_OPTIM_ADAFACTOR/g
s/\nMEMOPT_NO_ACTIVATION\n/MEMOPT_ACTIVATION_NONE/g
s/\nMEMOPT_RELU\n/MEMOPT_ACTIVATION_RELU/g
s/\nMEMOPT_GELU\n/MEMOPT_ACTIVATION_GELU/g
s/\nMEMOPT_SILU\n/MEMOPT_ACTIVATION_SILU/g
s/\nMEMOPT_CHAIN_MOST\n/MEMOPT_CHAIN_MAX/g
s/\nMEMOPT_CUDA_E4M3\n/MEMOPT_CUDA_FP8_E4M3/g
s/\nMEMOPT_CUDA_E5M2\n/MEMOPT_CUDA_FP8_E5M2/g
s/\nMEMOPT_CUDA_WORKSPACE\n/MEMOPT_CUDA_GEMM_WORKSPACE/g
s/\nMEMOPT_CUDA_CURRENT\n/MEMOPT_CUDA_CURRENT_DEVICE/g
s/\nMEMOPT_CUDA_OF_RUNTIME\n/MEMOPT_CUDA_BASE_RUNTIME/g
s/\nMEMOPT_CUDA_OF_EARLIER\n/MEMOPT_CUDA_BASE_PENDING/g
s/\nMEMOPT_CUDA_OF_DRIVER\n/MEMOPT_CUDA_BASE_DRIVER/g
s/\nMEMOPT_CUDA_OF_BLAS\n/MEMOPT_CUDA_BASE_BLAS/g
s/\nMEMOPT_CUDA_ERR_LEADING\n/MEMOPT_CUDA_ERR_STRIDE/g
s/\nMEMOPT_KEEP_NORMS\n/MEMOPT_PRECISION_NORMS/g
s/\nMEMOPT_KEEP_BIASES\n/MEMOPT_PRECISION_BIASES/g
s/\nMEMOPT_KEEP_EMBEDDINGS\n/MEMOPT_PRECISION_EMBEDDINGS/g
s/\nMEMOPT_KEEP_HEAD\n/MEMOPT_PRECISION_HEAD/g
s/\nmemopt_keep\n/memopt_codec/g
s/\nMEMOPT_KEEP_EXACT\n/MEMOPT_CODEC_EXACT/g
s/\nMEMOPT_KEEP_BF16\n/MEMOPT_CODEC_BF16/g
s/\nMEMOPT_KEEP_8BIT\n/MEMOPT_CODEC_8BIT/g
s/\nmemopt_keep_op\n/memopt_codec_op/g
s/\nMEMOPT_KEEP_ROUND\n/MEMOPT_CODEC_OP_ROUND/g
s/\nMEMOPT_KEEP_ENCODE\n/MEMOPT_CODEC_OP_ENCODE/g
s/\nMEMOPT_KEEP_DECODE\n/MEMOPT_CODEC_OP_DECODE/g
s/\nmemopt_tape_keeper\n/memopt_device_codec/g
s/\nmemopt_cuda_keeper\n/memopt_cuda_codec/g
s/\nmemopt_cuda_keeper_make\n/memopt_cuda_codec_make/g
s/\nmemopt_tape_get_error\n/memopt_tape_error/g
s/\nmemopt_pool\n/memopt_thread_pool/g
s/\nmemopt_pool_create\n/memopt_thread_pool_create/g
s/\nmemopt_pool_threads\n/memopt_thread_pool_threads/g
s/\nmemopt_pool_destroy\n/memopt_thread_pool_destroy/g
s/\nmemopt_open\n/memopt_open_mode/g
s/\nmemopt_held\n/memopt_footprint/g
s/\nmemopt_ledger_held\n/memopt_ledger_footprint/g
s/\nmemopt_heap_step\n/memopt_heap_begin_step/g
s/\nmemopt_slow\n/memopt_offload/g
s/\nMEMOPT_SLOW_UNLIMITED\n/MEMOPT_OFFLOAD_UNLIMITED/g
s/\nmemopt_point\n/memopt_schedule_point/g
s/\nmemopt_step\n/memopt_tape_call/g
s/\nmemopt_step_fn\n/memopt_tape_fn/g
s/\nmemopt_tape_least\n/memopt_tape_min_budget/g
s/\nmemopt_tape_abandon\n/memopt_tape_cancel/g
s/\nmemopt_tape_place\n/memopt_tape_set_memory/g
s/\nmemopt_lively\n/memopt_activation_args/g
s/\nmemopt_cuda_status_plain\n/memopt_cuda_to_status/g
s/\nmemopt_cuda_source_block\n/memopt_cuda_source_malloc/g
s/\nmemopt_cuda_transfer_fetch\n/memopt_cuda_transfer_prefetch/g
s/\nmemopt_cuda_optim_step_by\n/memopt_cuda_optim_step_with_factor/g
s/\nmemopt_cuda_optim_begin_by\n/memopt_cuda_optim_begin_with_factor/g
s/\nmemopt_cuda_optim_result_of\n/memopt_cuda_optim_outcome/g
s/\nmemopt_cuda_gemm_counts\n/memopt_cuda_gemm_stats/g
s/\nmemopt_cuda_gemm_counted\n/memopt_cuda_gemm_get_stats/g
s/\nmemopt_cuda_batch\n/memopt_cuda_gemm_batch/g
s/\nleft_turned\n/left_transposed/g
s/\nright_turned\n/right_transposed/g
s/\nleast_scale\n/min_scale/g
s/\nkept_bytes\n/copy_bytes/g
s/\nuntouchable\n/not_host_visible/g
s/\.\nkeeper\n/.device_codec/g
s/->\nkeeper\n/->device_codec/g
s/\.\ngranule\n/.granularity/g
s/->\ngranule\n/->granularity/g
s/\nmemopt_map\n/memopt_quant_map/g
s/\nMEMOPT_MAP_SIGNED\n/MEMOPT_QUANT_SIGNED/g
s/\nMEMOPT_MAP_UNSIGNED\n/MEMOPT_QUANT_UNSIGNED/g
s/\nMEMOPT_MAP_LINEAR\n/MEMOPT_QUANT_LINEAR/g
s/\nmemopt_map_levels\n/memopt_quant_levels/g
s/\nmemopt_op\n/memopt_action_kind/g
s/\nmemopt_rule\n/memopt_schedule_rule/g
s/\nmemopt_layer\n/memopt_tape_layer/g
s/\nMEMOPT_OP_FORWARD\n/MEMOPT_ACTION_FORWARD/g
s/\nMEMOPT_OP_FORWARD_SAVE\n/MEMOPT_ACTION_FORWARD_SAVE/g
s/\nMEMOPT_OP_BACKWARD\n/MEMOPT_ACTION_BACKWARD/g
s/\nMEMOPT_OP_DROP\n/MEMOPT_ACTION_DROP/g
s/\nMEMOPT_OP_WRITE\n/MEMOPT_ACTION_WRITE/g
s/\nMEMOPT_OP_READ\n/MEMOPT_ACTION_READ/g
s/\nMEMOPT_OP_WAIT\n/MEMOPT_ACTION_WAIT/g
s/\nMEMOPT_OP_FORGET\n/MEMOPT_ACTION_FORGET/g
s/\nMEMOPT_RULE_EXTENDED\n/MEMOPT_SCHEDULE_EXTENDED/g
s/\nMEMOPT_RULE_ROTOR\n/MEMOPT_SCHEDULE_ROTOR/g
s/\nMEMOPT_RULE_REVOLVE\n/MEMOPT_SCHEDULE_REVOLVE/g
s/\nMEMOPT_RULE_ALL\n/MEMOPT_SCHEDULE_ALL/g
s/\nMEMOPT_RULE_NONE\n/MEMOPT_SCHEDULE_NONE/g
s/\nMEMOPT_RULE_EVERY\n/MEMOPT_SCHEDULE_EVERY/g
s/\nMEMOPT_RULE_SQRT\n/MEMOPT_SCHEDULE_SQRT/g
s/\nMEMOPT_WEIGHTS_F32\n/MEMOPT_TYPE_F32/g
s/\nMEMOPT_WEIGHTS_BF16\n/MEMOPT_TYPE_BF16/g
s/\nmemopt_weight_format\n/memopt_type/g
s/\nmemopt_gradient_format\n/memopt_type/g
s/\nMEMOPT_GRADIENTS_F32\n/MEMOPT_TYPE_F32/g
s/\nMEMOPT_GRADIENTS_BF16\n/MEMOPT_TYPE_BF16/g
s/\nMEMOPT_GRADIENTS_F16\n/MEMOPT_TYPE_F16/g
s/\n//g
