// Every field of a Spec as a list, so that a fuzz target can disturb any of them.
#pragma once

#include "fuzz.h"
#include "qkvfuse/qkvfuse.hpp"

namespace qkvfuse::fuzz {

/// Changes one field of the spec, or a few.
void Disturb(QkvRmsNormRopeCacheSpec& spec, FuzzedDataProvider& bytes);
void Disturb(DequantRopeQuantKvcacheSpec& spec, FuzzedDataProvider& bytes);

}  // namespace qkvfuse::fuzz
