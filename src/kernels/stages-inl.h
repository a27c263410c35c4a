// Transform::kStages: norms and rotations of every kind, on heads in fp32 tiles of ours, in place
// (docs/numerics.md, sections 3 and 4).
#include "kernels/block-inl.h"
#include "kernels/rope-inl.h"
#include "kernels/tile-inl.h"

#if defined(QKVFUSE_KERNELS_STAGES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_STAGES_INL_H_
#undef QKVFUSE_KERNELS_STAGES_INL_H_
#else
#define QKVFUSE_KERNELS_STAGES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

/// The pairs that begin at pair j, of channels or of the weights for them; `at` is the first
/// rotated channel.
template <RopeSpec::Pairing kPairing, class D>
HWY_INLINE void LoadPairs(D d, const float* at, int64_t half, int64_t j, VecOf<D>& lo,
                          VecOf<D>& hi) {
  if constexpr (kPairing == RopeSpec::Pairing::kHalves) {
    lo = hn::LoadU(d, at + j);
    hi = hn::LoadU(d, at + half + j);
  } else if constexpr (hn::MaxLanes(D()) == 1) {
    lo = hn::LoadU(d, at + 2 * j);
    hi = hn::LoadU(d, at + 2 * j + 1);
  } else {
    hn::LoadInterleaved2(d, at + 2 * j, lo, hi);
  }
}

template <RopeSpec::Pairing kPairing, class D>
HWY_INLINE void StorePairs(D d, VecOf<D> lo, VecOf<D> hi, int64_t half, int64_t j, float* at) {
  if constexpr (kPairing == RopeSpec::Pairing::kHalves) {
    hn::StoreU(lo, d, at + j);
    hn::StoreU(hi, d, at + half + j);
  } else if constexpr (hn::MaxLanes(D()) == 1) {
    hn::StoreU(lo, d, at + 2 * j);
    hn::StoreU(hi, d, at + 2 * j + 1);
  } else {
    hn::StoreInterleaved2(lo, hi, d, at + 2 * j);
  }
}

/// What a head's rotation reads beside its channels.
struct Rotation {
  const float* coefficients;  // blocks of kTileLanes
  float factor;               // the reciprocal root of a norm before it
  const float* gamma;         // of the first rotated channel, where it is not in the coefficients
};

/// Rotates `half` pairs in place.
template <RopeSpec::Pairing kPairing, bool kNormalises, bool kHasGamma>
void RotatePairs(const Rotation& rotation, int64_t half, float* at) {
  ForEachVector(0, half, [&](auto d, int64_t j) QKVFUSE_LAMBDA {
    using D = decltype(d);
    const float* const block =
        rotation.coefficients + j / kTileLanes * kTileLanes * 4 + j % kTileLanes;
    auto cl = hn::LoadU(d, block);
    auto sl = hn::LoadU(d, block + kTileLanes);
    auto ch = hn::LoadU(d, block + 2 * kTileLanes);
    auto sh = hn::LoadU(d, block + 3 * kTileLanes);
    if constexpr (kHasGamma) {
      VecOf<D> gamma_lo, gamma_hi;
      LoadPairs<kPairing>(d, rotation.gamma, half, j, gamma_lo, gamma_hi);
      cl = hn::Mul(gamma_lo, cl);
      sl = hn::Mul(gamma_hi, sl);
      ch = hn::Mul(gamma_hi, ch);
      sh = hn::Mul(gamma_lo, sh);
    }
    VecOf<D> a, b;
    LoadPairs<kPairing>(d, at, half, j, a, b);
    if constexpr (kNormalises) {
      a = hn::Mul(a, hn::Set(d, rotation.factor));
      b = hn::Mul(b, hn::Set(d, rotation.factor));
    }
    const auto lo = FmaSub(d, a, cl, hn::Mul(b, sl));
    const auto hi = Fma(d, b, ch, hn::Mul(a, sh));
    StorePairs<kPairing>(d, lo, hi, half, j, at);
  });
}

template <RopeSpec::Pairing kPairing>
HWY_INLINE void RotateHead(const Rotation& rotation, bool normalises, int64_t half, float* at) {
  if (!normalises) return RotatePairs<kPairing, false, false>(rotation, half, at);
  if (rotation.gamma == nullptr) return RotatePairs<kPairing, true, false>(rotation, half, at);
  RotatePairs<kPairing, true, true>(rotation, half, at);
}

/// y = x * factor, and y * gamma where there is one, for channels [begin, end) of a head.
HWY_INLINE void ScaleChannels(float factor, const float* gamma, int64_t begin, int64_t end,
                              float* tile) {
  ForEachVector(begin, end, [&](auto d, int64_t i) QKVFUSE_LAMBDA {
    auto y = hn::Mul(hn::LoadU(d, tile + i), hn::Set(d, factor));
    if (gamma != nullptr) y = hn::Mul(y, hn::LoadU(d, gamma + i));
    hn::StoreU(y, d, tile + i);
  });
}

/// One head's way through the stages.
class HeadStages {
 public:
  HWY_INLINE HeadStages(const GroupTask& task, int64_t head)
      : stages_(task.stages), head_dim_(task.head_dim) {
    if (stages_.gamma != nullptr) gamma_ = stages_.gamma + head * stages_.gamma_head_stride;
  }

  /// The rotation, with the norm before it if there is one. Coefficients are the token's.
  void Rotate(const float* coefficients, float factor, float* tile) const {
    const bool normalises = stages_.norm == Stages::Norm::kBeforeRope;
    const int64_t first = stages_.first_channel;
    // A weight that all heads share is part of the coefficients.
    const bool has_own_gamma = normalises && gamma_ != nullptr && stages_.gamma_head_stride != 0;
    const Rotation rotation{coefficients, factor, has_own_gamma ? gamma_ + first : nullptr};
    const int64_t half = stages_.rotary_dim / 2;
    if (stages_.pairing == RopeSpec::Pairing::kHalves) {
      RotateHead<RopeSpec::Pairing::kHalves>(rotation, normalises, half, tile + first);
    } else if (stages_.pairing == RopeSpec::Pairing::kInterleaved) {
      RotateHead<RopeSpec::Pairing::kInterleaved>(rotation, normalises, half, tile + first);
    }
    if (!normalises) return;
    ScaleChannels(factor, gamma_, 0, first, tile);
    ScaleChannels(factor, gamma_, first + stages_.rotary_dim, head_dim_, tile);
  }

  /// The norm after the rotation.
  void Normalise(float factor, float* tile) const {
    ScaleChannels(factor, gamma_, 0, head_dim_, tile);
  }

 private:
  const Stages& stages_;
  int64_t head_dim_;
  const float* gamma_ = nullptr;
};

/// Sum of squares of a head in a padded tile.
HWY_INLINE float SumOfTile(const float* tile, int64_t head_dim) {
  return SumOfSquares<FloatSource, LaneOrder::kNatural, kTileLanes>(
      HeadInput{tile, nullptr, nullptr, 1.0f}, PaddedChannels(head_dim));
}

/// Coefficients of a tile's i-th token.
HWY_INLINE const float* CoefficientsOfToken(const GroupTask& task, const Tile& tile, int64_t i) {
  return tile.coefficients + i * CoefficientStep(Transform::kStages, task.stages.rotary_dim);
}

/// Applies the stages to the heads of a block in their tiles, [heads, tokens, padded]. `factors`,
/// [heads, tokens], are the heads' sums of squares as they came, and become the reciprocal roots
/// where `roots`, one for each token of the tile, are null.
inline void ApplyStages(const GroupTask& task, const Tile& tile, const Block& block, int64_t padded,
                        const float* roots, float* tiles, float* factors) {
  const Stages& stages = task.stages;
  const int64_t heads = block.heads * block.tokens;
  const bool norms_after = stages.norm == Stages::Norm::kAfterRope;
  const bool has_norm = stages.norm != Stages::Norm::kNone;
  if (has_norm && !norms_after && roots == nullptr) {
    ReciprocalRoots(factors, heads, task.head_dim, task.epsilon);
  }
  for (int64_t at = 0; at < heads; ++at) {
    const int64_t i = block.first + at % block.tokens;
    float* const head = tiles + at * padded;
    const float factor = roots != nullptr ? roots[i] : factors[at];
    const HeadStages way(task, block.first_head + at / block.tokens);
    way.Rotate(CoefficientsOfToken(task, tile, i), factor, head);
    if (!norms_after) continue;
    if (roots != nullptr) {
      way.Normalise(factor, head);
    } else {
      factors[at] = SumOfTile(head, task.head_dim);
    }
  }
  if (!norms_after || roots != nullptr) return;
  ReciprocalRoots(factors, heads, task.head_dim, task.epsilon);
  for (int64_t at = 0; at < heads; ++at) {
    HeadStages(task, block.first_head + at / block.tokens)
        .Normalise(factors[at], tiles + at * padded);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
