// Inputs as a language model has them: heavy-tailed activations with outlier channels, RoPE tables,
// page slots, and quantisation scales calibrated from the data.
#pragma once

#include <cstdint>

#include "cases/problem.h"

namespace qkvfuse::cli {

/// Overwrites x, gammas, cos, sin, slots and the dequantisation parameters of a problem with packed
/// inputs. The same seed gives the same x, whatever the caches are.
void FillLikeAModel(cases::Problem& problem, uint64_t seed, int threads);

/// Sets the scales of int8 caches to amax/127 per head and channel of the very k and v that this
/// problem computes. Throws std::runtime_error when the library refuses.
void CalibrateScales(cases::Problem& problem);

}  // namespace qkvfuse::cli
