// Whether a stream handle may be used.
#pragma once

namespace qkvfuse::capi {

/// 0 for the default (null) and for live streams; 107017 and a sentence for others.
[[nodiscard]] int CheckStream(const void* stream);

}  // namespace qkvfuse::capi
