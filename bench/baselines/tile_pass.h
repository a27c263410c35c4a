// One pass of a baseline over the tokens of a call, in parallel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/fp_environment.h"
#include "base/parallel.h"
#include "kernels/kernels.h"
#include "qkvfuse/runtime.hpp"
#include "qkvfuse/tensor.hpp"

namespace qkvfuse::bench {

/// body(tile) for each tile of each part.
template <class Body>
class TilePass {
 public:
  TilePass(TokenCount tokens, int parts, const Body& body)
      : total_(tokens.total()), parts_(parts), body_(body) {}

  void Run() { RunParallel(parts_, parts_, &TilePass::RunPart, this); }

 private:
  static void RunPart(void* context, int64_t part) {
    const auto& pass = *static_cast<const TilePass*>(context);
    const ScopedFpEnvironment environment;
    const int64_t end = pass.total_ * (part + 1) / pass.parts_;
    for (int64_t first = pass.total_ * part / pass.parts_; first < end;
         first += kernels::kTileTokens) {
      kernels::Tile tile;
      tile.first_token = first;
      tile.tokens = std::min(kernels::kTileTokens, end - first);
      tile.cache_rows = kernels::kNoCacheRows;
      pass.body_(tile);
    }
  }

  int64_t total_;
  int parts_;
  const Body& body_;
};

[[nodiscard]] inline kernels::Tile WithHeads(kernels::Tile tile, const kernels::GroupTask& task) {
  tile.heads = task.heads;
  return tile;
}

}  // namespace qkvfuse::bench
