// aclnnQkvRmsNormRopeCache: its parameters, and how they become the arguments of Bind.
#include "aclnnop/aclnn_qkv_rms_norm_rope_cache.h"

#include "capi/door.h"
#include "qkvfuse/qkv_rms_norm_rope_cache.hpp"

namespace qkvfuse::capi {
namespace {

using Arguments = QkvRmsNormRopeCacheArguments;

constexpr OperatorName kName{"aclnnQkvRmsNormRopeCache"};

constexpr ArgumentTable<Arguments> kTable{{
    {{"qkv", &Tensors::x}, &Arguments::qkv},
    {{"qGamma", &Tensors::q_gamma}, &Arguments::q_gamma},
    {{"kGamma", &Tensors::k_gamma}, &Arguments::k_gamma},
    {{"cos", &Tensors::cos}, &Arguments::cos},
    {{"sin", &Tensors::sin}, &Arguments::sin},
    {{"index", &Tensors::slots}, &Arguments::index},
    {{"qOut", &Tensors::q_out, 0}, &Arguments::q_out},
    {{"kCache", &Tensors::k_cache, 1}, &Arguments::k_cache},
    {{"vCache", &Tensors::v_cache, 2}, &Arguments::v_cache},
    {{"kScale", &Tensors::k_scale}, &Arguments::k_scale},
    {{"vScale", &Tensors::v_scale}, &Arguments::v_scale},
    {{"kOffset", &Tensors::k_offset}, &Arguments::k_offset},
    {{"vOffset", &Tensors::v_offset}, &Arguments::v_offset},
    {{"qOutBeforeQuant", &Tensors::q_before_quant, 3}, &Arguments::q_out_before_quant},
    {{"kOutBeforeQuant", &Tensors::k_out, 4}, &Arguments::k_out_before_quant},
    {{"vOutBeforeQuant", &Tensors::v_out, 5}, &Arguments::v_out_before_quant},
}};

}  // namespace
}  // namespace qkvfuse::capi

using namespace qkvfuse::capi;  // NOLINT: the functions below are the C face of this file

aclnnStatus aclnnQkvRmsNormRopeCacheGetWorkspaceSize(
    const aclTensor* qkv, const aclTensor* qGamma, const aclTensor* kGamma, const aclTensor* cos,
    const aclTensor* sin, const aclTensor* index, aclTensor* qOut, aclTensor* kCache,
    aclTensor* vCache, const aclTensor* kScaleOptional, const aclTensor* vScaleOptional,
    const aclTensor* kOffsetOptional, const aclTensor* vOffsetOptional, const aclIntArray* qkvSize,
    const aclIntArray* headNums, double epsilon, char* cacheModeOptional,
    const aclTensor* qOutBeforeQuant, const aclTensor* kOutBeforeQuant,
    const aclTensor* vOutBeforeQuant, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const PhaseOneResults results{workspaceSize, executor};
  if (const int code = ClearResults(results); code != ACLNN_SUCCESS) return code;
  return Guarded(ACLNN_ERR_INNER, [&] {
    Arguments arguments;
    arguments.qkv_size = IntegersOf(qkvSize);
    arguments.head_nums = IntegersOf(headNums);
    arguments.epsilon = epsilon;
    arguments.cache_mode = cacheModeOptional;
    const ArgumentTensors tensors{qkv,
                                  qGamma,
                                  kGamma,
                                  cos,
                                  sin,
                                  index,
                                  qOut,
                                  kCache,
                                  vCache,
                                  kScaleOptional,
                                  vScaleOptional,
                                  kOffsetOptional,
                                  vOffsetOptional,
                                  qOutBeforeQuant,
                                  kOutBeforeQuant,
                                  vOutBeforeQuant};
    return RunPhaseOne(kName, kTable, tensors, arguments, results);
  });
}

aclnnStatus aclnnQkvRmsNormRopeCache(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream /*stream*/) {
  return RunPhaseTwo(kName, workspace, workspaceSize, executor);
}
