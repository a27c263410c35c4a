// Everything of the C++ door.
#pragma once

#include "qkvfuse/cache_layout.hpp"
#include "qkvfuse/dequant_rope_quant_kvcache.hpp"
#include "qkvfuse/dtype.hpp"
#include "qkvfuse/fused_qkv.hpp"
#include "qkvfuse/model_spec.hpp"
#include "qkvfuse/pages.hpp"
#include "qkvfuse/plan.hpp"
#include "qkvfuse/qkv_rms_norm_rope_cache.hpp"
#include "qkvfuse/rope_table.hpp"
#include "qkvfuse/runtime.hpp"
#include "qkvfuse/specs.hpp"
#include "qkvfuse/status.hpp"
#include "qkvfuse/tensor.hpp"
