// Values of every input, by tensor and kind of data.
#include "cases/fill.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <unordered_map>

#include "cases/recorded.h"
#include "reference/accuracy.h"

namespace qkvfuse::cases {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t Bits() { return engine_(); }
  /// [0, n).
  uint64_t Below(uint64_t n) { return engine_() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  /// [0, 1), 53 bits.
  double Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double Between(double low, double high) { return low + (high - low) * Unit(); }
  /// Nearly normal: the sum of twelve uniform numbers.
  double Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += Unit();
    return sum;
  }
  double OneOf(std::span<const double> values) { return values[Below(values.size())]; }

 private:
  std::mt19937_64 engine_;
};

// The number of a tensor's stream of random numbers: those that came later have later ones, so that
// the data of a case stays as it was.
uint64_t StreamOf(TensorId id) {
  constexpr TensorId kFirst[] = {TensorId::kX,       TensorId::kQGamma,      TensorId::kKGamma,
                                 TensorId::kCos,     TensorId::kSin,         TensorId::kSlots,
                                 TensorId::kKScale,  TensorId::kVScale,      TensorId::kKOffset,
                                 TensorId::kVOffset, TensorId::kWeightScale, TensorId::kTokenScale,
                                 TensorId::kBias};
  const auto* const found = std::find(std::begin(kFirst), std::end(kFirst), id);
  if (found != std::end(kFirst)) return static_cast<uint64_t>(found - std::begin(kFirst));
  return 19 + static_cast<uint64_t>(id);
}

// Values that a kernel may get wrong; each tensor draws from one of the lists.
constexpr double kSpecialScales[] = {-0.03, 0x1p-140, -0x1p-149, 1e30, kNan, kInfinity, 1.0};
constexpr double kSpecialZeroScales[] = {0.0, -0.0};
constexpr double kSpecialOffsets[] = {127.5, -128.5, 0.5, -0.0, kNan, kInfinity, -kInfinity, 1e30};
constexpr double kSpecialFactors[] = {-1, 0.0, -0.0, 0x1p-149, 0x1p-24, 1e30, kInfinity, kNan};
constexpr double kTieScales[] = {0.5, 1, 2, -1};
constexpr double kTieTable[] = {0, 1, -1, 0.5};
constexpr double kTieFactors[] = {0.25, 0.5, 1, 2};

// What an element of x is drawn from; chosen per head where the data is special, as one NaN
// makes a whole normalised head NaN.
enum class XClass { kOrdinary, kTiny, kFinitePatterns, kPatterns };

class Filler {
 public:
  Filler(const Case& c, TensorId id, const TensorView& view)
      : case_(c), id_(id), view_(view), random_(c.seed * 64 + StreamOf(id)) {}

  void Run() {
    for (int64_t i = 0; i < view_.shape.ElementCount(); ++i) {
      const int64_t offset = OffsetOf(view_.shape, i);
      const auto recorded = is(DataKind::kGemma3) ? RecordedValue(case_, id_, view_.shape, i)
                                                  : std::optional<double>();
      if (recorded) {
        StoreElement(view_, offset, *recorded);
      } else if (id_ <= TensorId::kV) {
        FillX(i, offset);
      } else {
        StoreElement(view_, offset, Value());
      }
    }
  }

 private:
  [[nodiscard]] bool is(DataKind kind) const { return case_.data == kind; }

  double Value() {
    switch (id_) {
      case TensorId::kQGamma:
      case TensorId::kKGamma:
      case TensorId::kVGamma:
        return Gamma();
      case TensorId::kCos:
      case TensorId::kSin:
        return Table();
      case TensorId::kQScale:
      case TensorId::kKScale:
      case TensorId::kVScale:
        return Scale();
      case TensorId::kQOffset:
      case TensorId::kKOffset:
      case TensorId::kVOffset:
        return Offset();
      case TensorId::kPositions:
        return static_cast<double>(random_.Below(static_cast<uint64_t>(case_.fused.max_positions)));
      case TensorId::kQSums:
      case TensorId::kKSums:
        return Factor(1, 500);
      case TensorId::kWeightScale:
        return Factor(1e-4, 1e-3);
      case TensorId::kTokenScale:
        return Factor(0.5, 2);
      default:
        return Bias();
    }
  }

  double Gamma() {
    if (is(DataKind::kTies)) return static_cast<double>(random_.Below(32)) * 0.5 - 4;
    if (is(DataKind::kSpecial) && random_.OneIn(32)) return random_.OneOf(kSpecialFactors);
    return random_.Between(0.5, 1.5);
  }

  double Table() {
    if (is(DataKind::kTies)) return random_.OneOf(kTieTable);
    if (is(DataKind::kSpecial) && random_.OneIn(32)) return random_.OneOf(kSpecialFactors);
    return random_.Between(-1, 1);
  }

  double Scale() {
    if (is(DataKind::kTies)) return random_.OneOf(kTieScales);
    if (is(DataKind::kSpecial) && random_.OneIn(4)) {
      const bool may_be_zero = !case_.strict && random_.OneIn(4);
      return may_be_zero ? random_.OneOf(kSpecialZeroScales) : random_.OneOf(kSpecialScales);
    }
    const double magnitude = Multiplies() ? random_.Between(20, 100) : random_.Between(0.01, 0.05);
    return random_.OneIn(16) ? -magnitude : magnitude;
  }

  [[nodiscard]] bool Multiplies() const {
    const CacheCase& cache = id_ == TensorId::kQScale   ? case_.fused.q_out
                             : id_ == TensorId::kKScale ? case_.k_cache
                                                        : case_.v_cache;
    return cache.rule == ScaleRule::kMultiply;
  }

  double Offset() {
    if (is(DataKind::kTies)) return static_cast<double>(random_.Below(64)) * 0.5 - 16;
    if (is(DataKind::kSpecial) && random_.OneIn(4)) return random_.OneOf(kSpecialOffsets);
    return random_.Between(-20, 20);
  }

  double Factor(double low, double high) {
    if (is(DataKind::kTies)) return random_.OneOf(kTieFactors);
    if (is(DataKind::kSpecial) && random_.OneIn(8)) return random_.OneOf(kSpecialFactors);
    return random_.Between(low, high);
  }

  double Bias() {
    const bool is_integer = view_.dtype == DType::kInt32;
    if (is(DataKind::kTies)) return std::floor(random_.Between(-100, 100)) * (is_integer ? 1 : 0.5);
    if (is(DataKind::kSpecial) && random_.OneIn(4)) {
      if (!is_integer) return random_.OneOf(kSpecialFactors);
      return random_.OneIn(2) ? 0x1p31 - 1 : -0x1p31;
    }
    return is_integer ? std::floor(random_.Between(-3000, 3000)) : random_.Between(-2, 2);
  }

  void FillX(int64_t i, int64_t offset) {
    const int64_t head_dim = case_.head_dim;
    if (is(DataKind::kSpecial) && i % head_dim == 0) class_ = static_cast<XClass>(random_.Below(4));
    if (class_ == XClass::kOrdinary) {
      const int64_t head = i / head_dim % case_.heads.total();
      StoreElement(view_, offset, OrdinaryX(head, i % head_dim));
    } else if (class_ == XClass::kTiny) {
      const double step = view_.dtype == DType::kFloat16   ? 0x1p-24
                          : view_.dtype == DType::kFloat32 ? 0x1p-149
                                                           : 0x1p-133;
      const double steps = static_cast<double>(random_.Below(7)) - 3;
      StoreElement(view_, offset, view_.dtype == DType::kInt32 ? steps : steps * step);
    } else {
      StorePattern(offset);
    }
  }

  double OrdinaryX(int64_t head, int64_t channel) {
    const bool is_integer = view_.dtype == DType::kInt32;
    if (is(DataKind::kTies)) return TieX(head, is_integer);
    double x = random_.Between(-4, 4);
    if (is(DataKind::kHeavyTailed)) {
      const uint64_t mixed = (static_cast<uint64_t>(channel) + case_.seed) * 0x9E3779B97F4A7C15U;
      const bool is_outlier_channel = mixed >> 58 == 0;  // one in 64
      x = random_.Normal() / std::sqrt(0.05 + random_.Unit()) * (is_outlier_channel ? 40 : 1);
    }
    return is_integer ? x * 2500 : x;
  }

  // Normalised heads of +-1 have the reciprocal root 1 (epsilon aside) and so keep exact values.
  double TieX(int64_t head, bool is_integer) {
    const bool is_normalised =
        case_.op != Operator::kDequantRopeQuantKvcache && head < case_.heads.q + case_.heads.k;
    if (is_normalised) return random_.OneIn(2) ? 1 : -1;
    const auto steps = static_cast<double>(random_.Below(8193)) - 4096;
    return is_integer ? steps : steps / 32;
  }

  // Any bit pattern; 16-bit ones with an all-ones exponent only in heads of class kPatterns.
  void StorePattern(int64_t offset) {
    const uint64_t bits = random_.Bits();
    std::byte* address = static_cast<std::byte*>(view_.data) + offset * SizeOf(view_.dtype);
    if (view_.dtype == DType::kInt32) {
      const auto any = static_cast<uint32_t>(bits);
      const uint32_t edges[] = {0x7FFFFFFFU, 0x80000000U, 0x1000001U, any, any, any, any, any};
      std::memcpy(address, &edges[bits >> 61], sizeof(any));
      return;
    }
    if (view_.dtype == DType::kFloat32) {
      auto pattern = static_cast<uint32_t>(bits);
      const bool is_finite = (pattern & 0x7F800000U) != 0x7F800000U;
      if (class_ == XClass::kFinitePatterns && !is_finite) pattern &= 0x83FFFFFFU;
      std::memcpy(address, &pattern, sizeof(pattern));
      return;
    }
    auto pattern = static_cast<uint16_t>(bits);
    const int exponent_mask = view_.dtype == DType::kFloat16 ? 0x7C00 : 0x7F80;
    const bool is_finite = (pattern & exponent_mask) != exponent_mask;
    if (class_ == XClass::kFinitePatterns && !is_finite) pattern &= 0x83FF;
    std::memcpy(address, &pattern, sizeof(pattern));
  }

  const Case& case_;
  TensorId id_;
  const TensorView& view_;
  Random random_;
  XClass class_ = XClass::kOrdinary;
};

// The first `count` numbers of a random permutation of 0 .. capacity-1, without storing it.
std::vector<int64_t> DistinctNumbers(int64_t count, int64_t capacity, Random& random) {
  std::unordered_map<int64_t, int64_t> moved;  // where the shuffle has put something else
  const auto at = [&](int64_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t j = i + static_cast<int64_t>(random.Below(static_cast<uint64_t>(capacity - i)));
    numbers.push_back(at(j));
    moved[j] = at(i);
  }
  return numbers;
}

std::vector<int64_t> Starts(const Case& c, Random& random) {
  std::vector<int64_t> starts;
  const auto last_start = static_cast<uint64_t>(c.block_size - c.tokens.sequence);
  for (int64_t b = 0; b < c.tokens.batch; ++b) {
    const bool is_sequential = c.slots == SlotPattern::kSequential;
    starts.push_back(is_sequential ? 0 : static_cast<int64_t>(random.Below(last_start + 1)));
  }
  return starts;
}

// Pages of no other sequence, in random order; what a sequence has no rows for is -1.
std::vector<int64_t> PageTable(const Case& c, Random& random) {
  const int64_t pages = PagesOf(c);
  const std::vector<RaggedSequence> sequences = RaggedSequences(c);
  std::vector<int64_t> table = DistinctNumbers(c.fused.sequences * pages, BlockCount(c), random);
  for (size_t b = 0; b < sequences.size(); ++b) {
    const int64_t rows = sequences[b].tokens + sequences[b].past;
    for (int64_t page = (rows + c.block_size - 1) / c.block_size; page < pages; ++page) {
      table[b * static_cast<size_t>(pages) + static_cast<size_t>(page)] = -1;
    }
  }
  return table;
}

std::vector<int64_t> Lengths(const Case& c) {
  std::vector<int64_t> lengths;
  for (const auto& [tokens, past] : RaggedSequences(c)) lengths.push_back(tokens + past);
  return lengths;
}

std::vector<int64_t> RowOffsets(const Case& c) {
  std::vector<int64_t> offsets{0};
  for (const auto& [tokens, past] : RaggedSequences(c)) offsets.push_back(offsets.back() + tokens);
  return offsets;
}

std::vector<int64_t> Slots(const Case& c, Random& random) {
  if (c.is_ragged()) return PageTable(c, random);
  if (c.slot_mode == SlotMode::kStartPerSequence) return Starts(c, random);
  const int64_t tokens = c.tokens.total();
  const int64_t capacity = BlockCount(c) * c.block_size;
  std::vector<int64_t> slots(static_cast<size_t>(tokens), -1);
  if (c.slots == SlotPattern::kSkipped) return slots;
  if (c.slots == SlotPattern::kRepeated) {
    const auto distinct = static_cast<uint64_t>(std::min(capacity, tokens / 3 + 1));
    for (int64_t& slot : slots) slot = static_cast<int64_t>(random.Below(distinct));
    return slots;
  }
  if (c.slots != SlotPattern::kSequential) slots = DistinctNumbers(tokens, capacity, random);
  for (size_t t = 0; t < slots.size(); ++t) {
    if (c.slots == SlotPattern::kSequential) slots[t] = static_cast<int64_t>(t);
    if (c.slots == SlotPattern::kPadded && t % 3 == 1) slots[t] = -1;
  }
  return slots;
}

void FillIndices(const TensorView& view, const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t offset = OffsetOf(view.shape, static_cast<int64_t>(i));
    std::byte* address = static_cast<std::byte*>(view.data) + offset * SizeOf(view.dtype);
    const auto narrow = static_cast<int32_t>(values[i]);
    if (view.dtype == DType::kInt64) {
      std::memcpy(address, &values[i], sizeof(values[i]));
    } else {
      std::memcpy(address, &narrow, sizeof(narrow));
    }
  }
}

double Whole(double value, double low, double high) {
  return std::isnan(value) ? 0 : std::nearbyint(std::clamp(value, low, high));
}

}  // namespace

int64_t OffsetOf(const StridedShape& shape, int64_t position) {
  int64_t offset = 0;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    const auto a = static_cast<size_t>(axis);
    offset += position % shape.dims[a] * shape.strides[a];
    position /= shape.dims[a];
  }
  return offset;
}

void StoreElement(const TensorView& view, int64_t offset_elements, double value) {
  std::byte* address = static_cast<std::byte*>(view.data) + offset_elements * SizeOf(view.dtype);
  const auto store = [&](auto element) { std::memcpy(address, &element, sizeof(element)); };
  switch (view.dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return store(reference::Round16(view.dtype, value));
    case DType::kInt8:
      return store(reference::RoundCode(value));
    case DType::kInt32:
      return store(static_cast<int32_t>(Whole(value, -0x1p31, 0x1p31 - 1)));
    case DType::kInt64:
      return store(static_cast<int64_t>(Whole(value, -0x1p62, 0x1p62)));
    case DType::kFloat32:
      return store(static_cast<float>(value));
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return;  // of outputs only
  }
}

void Fill(const Case& c, TensorId id, const TensorView& view) {
  if (id == TensorId::kSlots) {
    Random random(c.seed * 64 + StreamOf(id));
    return FillIndices(view, Slots(c, random));
  }
  if (id == TensorId::kLengths) return FillIndices(view, Lengths(c));
  if (id == TensorId::kRowOffsets) return FillIndices(view, RowOffsets(c));
  Filler(c, id, view).Run();
}

}  // namespace qkvfuse::cases
