// aclnnDequantRopeQuantKvcache: its parameters, and how they become the arguments of Bind.
#include "aclnnop/aclnn_dequant_rope_quant_kvcache.h"

#include "capi/door.h"
#include "qkvfuse/dequant_rope_quant_kvcache.hpp"

namespace qkvfuse::capi {
namespace {

using Arguments = DequantRopeQuantKvcacheArguments;

constexpr OperatorName kName{"aclnnDequantRopeQuantKvcache"};

constexpr ArgumentTable<Arguments> kTable{{
    {{"x", &Tensors::x}, &Arguments::x},
    {{"cos", &Tensors::cos}, &Arguments::cos},
    {{"sin", &Tensors::sin}, &Arguments::sin},
    {{"kCacheRef", &Tensors::k_cache, 3}, &Arguments::k_cache},
    {{"vCacheRef", &Tensors::v_cache, 4}, &Arguments::v_cache},
    {{"indices", &Tensors::slots}, &Arguments::indices},
    {{"scaleK", &Tensors::k_scale}, &Arguments::scale_k},
    {{"scaleV", &Tensors::v_scale}, &Arguments::scale_v},
    {{"offsetK", &Tensors::k_offset}, &Arguments::offset_k},
    {{"offsetV", &Tensors::v_offset}, &Arguments::offset_v},
    {{"weightScale", &Tensors::weight_scale}, &Arguments::weight_scale},
    {{"activationScale", &Tensors::token_scale}, &Arguments::activation_scale},
    {{"bias", &Tensors::bias}, &Arguments::bias},
    {{"qOut", &Tensors::q_out, 0}, &Arguments::q_out},
    {{"kOut", &Tensors::k_out, 1}, &Arguments::k_out},
    {{"vOut", &Tensors::v_out, 2}, &Arguments::v_out},
}};

}  // namespace
}  // namespace qkvfuse::capi

using namespace qkvfuse::capi;  // NOLINT: the functions below are the C face of this file

aclnnStatus aclnnDequantRopeQuantKvcacheGetWorkspaceSize(
    const aclTensor* x, const aclTensor* cos, const aclTensor* sin, aclTensor* kCacheRef,
    aclTensor* vCacheRef, const aclTensor* indices, const aclTensor* scaleK,
    const aclTensor* scaleV, const aclTensor* offsetKOptional, const aclTensor* offsetVOptional,
    const aclTensor* weightScaleOptional, const aclTensor* activationScaleOptional,
    const aclTensor* biasOptional, const aclIntArray* sizeSplits, char* quantModeOptional,
    char* layoutOptional, bool kvOutput, char* cacheModeOptional, const aclTensor* qOut,
    const aclTensor* kOut, const aclTensor* vOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  const PhaseOneResults results{workspaceSize, executor};
  if (const int code = ClearResults(results); code != ACLNN_SUCCESS) return code;
  return Guarded(ACLNN_ERR_INNER, [&] {
    Arguments arguments;
    arguments.size_splits = IntegersOf(sizeSplits);
    arguments.quant_mode = quantModeOptional;
    arguments.layout = layoutOptional;
    arguments.kv_output = kvOutput;
    arguments.cache_mode = cacheModeOptional;
    // Tensors that the call does not use are not even looked at.
    const bool is_dequantised = x != nullptr && x->data_type == ACL_INT32;
    const auto if_dequantised = [&](const aclTensor* t) { return is_dequantised ? t : nullptr; };
    const auto if_kv_output = [&](const aclTensor* t) { return kvOutput ? t : nullptr; };
    const ArgumentTensors tensors{x,
                                  cos,
                                  sin,
                                  kCacheRef,
                                  vCacheRef,
                                  indices,
                                  scaleK,
                                  scaleV,
                                  offsetKOptional,
                                  offsetVOptional,
                                  if_dequantised(weightScaleOptional),
                                  if_dequantised(activationScaleOptional),
                                  if_dequantised(biasOptional),
                                  qOut,
                                  if_kv_output(kOut),
                                  if_kv_output(vOut)};
    return RunPhaseOne(kName, kTable, tensors, arguments, results);
  });
}

aclnnStatus aclnnDequantRopeQuantKvcache(void* workspace, uint64_t workspaceSize,
                                         aclOpExecutor* executor, const aclrtStream /*stream*/) {
  return RunPhaseTwo(kName, workspace, workspaceSize, executor);
}
