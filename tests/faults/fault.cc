// Filling, running and looking at the problem of a public fault.
#include "tests/faults/fault.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "cases/fill.h"
#include "tests/support/witness.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;

uint64_t Checksum(const std::vector<int>& codes) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const int code : codes) hash = (hash ^ static_cast<uint8_t>(code)) * 0x100000001B3U;
  return hash;
}

double Load(const TensorView& view, int64_t offset) {
  const std::byte* const address =
      static_cast<const std::byte*>(view.data) + offset * SizeOf(view.dtype);
  if (view.dtype == DType::kInt8) return static_cast<double>(static_cast<int8_t>(*address));
  uint16_t bits = 0;
  std::memcpy(&bits, address, sizeof(bits));
  return Decode16(view.dtype, bits);
}

int64_t OffsetOf(const TensorView& view, const std::vector<int64_t>& at) {
  int64_t offset = 0;
  for (size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * view.shape.strides[axis];
  return offset;
}

void StoreSlot(const TensorView& view, int64_t offset, int64_t slot) {
  std::byte* const address = static_cast<std::byte*>(view.data) + offset * SizeOf(view.dtype);
  const auto narrow = static_cast<int32_t>(slot);
  if (view.dtype == DType::kInt64) {
    std::memcpy(address, &slot, sizeof(slot));
  } else {
    std::memcpy(address, &narrow, sizeof(narrow));
  }
}

int64_t LoadSlot(const TensorView& view, int64_t i) {
  const std::byte* const address = static_cast<const std::byte*>(view.data) +
                                   cases::OffsetOf(view.shape, i) * SizeOf(view.dtype);
  int64_t wide = 0;
  int32_t narrow = 0;
  if (view.dtype == DType::kInt32) {
    std::memcpy(&narrow, address, sizeof(narrow));
    return narrow;
  }
  std::memcpy(&wide, address, sizeof(wide));
  return wide;
}

void FillUsual(Fault& fault) {
  const std::pair<TensorId, Generator> usual[] = {
      {TensorId::kX, Pat(37, 11, 251, 16)},   {TensorId::kQGamma, Cyc(7, 4, 8)},
      {TensorId::kKGamma, Cyc(5, 3, 8)},      {TensorId::kCos, Pat(13, 5, 127, 64)},
      {TensorId::kSin, Pat(29, 17, 127, 64)}, {TensorId::kKScale, Cyc(9, 4, 128)},
      {TensorId::kVScale, Cyc(11, 4, 64)},    {TensorId::kKOffset, Cyc(13, -6, 2)},
      {TensorId::kVOffset, Cyc(7, -3, 4)}};
  const bool is_int32 = fault.description().x_dtype == DType::kInt32;
  for (const auto& [id, generator] : usual) {
    if (!cases::Has(fault.description(), id) || (is_int32 && id == TensorId::kX)) continue;
    fault.Fill(id, generator);
  }
}

// Codes as text that can be pasted, for the sentence of a failure.
std::string Text(const std::vector<int>& codes) {
  std::string text;
  for (const int code : codes) text += std::to_string(code) + ' ';
  return text;
}

}  // namespace

Generator Pat(int64_t a, int64_t b, int64_t m, double den) {
  return [=](int64_t i) { return static_cast<double>((a * i + b) % m - m / 2) / den; };
}

Generator Cyc(int64_t m, int64_t add, double den) {
  return [=](int64_t i) { return static_cast<double>(i % m + add) / den; };
}

Generator Constant(double value) {
  return [=](int64_t) { return value; };
}

Generator List(std::vector<double> values) { return Runs(1, std::move(values)); }

Generator Runs(int64_t run, std::vector<double> values) {
  return [run, values = std::move(values)](int64_t i) {
    return values[static_cast<size_t>(i / run) % values.size()];
  };
}

void ExpectSameCodes(const std::string& name, const std::vector<int>& codes,
                     const Codes& expected) {
  ASSERT_GE(codes.size(), expected.first.size() + expected.last.size()) << name;
  const auto first = codes.begin() + static_cast<std::ptrdiff_t>(expected.first.size());
  EXPECT_EQ(std::vector<int>(codes.begin(), first), expected.first) << name;
  const auto last = codes.end() - static_cast<std::ptrdiff_t>(expected.last.size());
  EXPECT_EQ(std::vector<int>(last, codes.end()), expected.last) << name;
  EXPECT_EQ(Checksum(codes), expected.checksum) << name << ": " << Text(codes);
}

Fault::Fault(const std::string& line) : problem_(MakeProblem(CaseOf(line))) { FillUsual(*this); }

TensorView Fault::View(TensorId id) const {
  TensorView view;
  for (const auto& views : {problem_->Inputs(), problem_->Outputs()}) {
    for (const cases::NamedView& named : views) {
      if (named.id == id) view = named.view;
    }
  }
  EXPECT_NE(view.data, nullptr) << cases::Name(id) << " is not part of the case";
  return view;
}

Fault& Fault::Fill(TensorId id, const Generator& generator) {
  const TensorView view = View(id);
  for (int64_t i = 0; i < view.shape.ElementCount(); ++i) {
    cases::StoreElement(view, cases::OffsetOf(view.shape, i), generator(i));
  }
  return *this;
}

Fault& Fault::Set(TensorId id, const std::vector<int64_t>& positions, double value) {
  const TensorView view = View(id);
  for (const int64_t i : positions) {
    cases::StoreElement(view, cases::OffsetOf(view.shape, i), value);
  }
  return *this;
}

Fault& Fault::SetBits(TensorId id, int64_t position, uint16_t bits) {
  const TensorView view = View(id);
  std::memcpy(static_cast<std::byte*>(view.data) +
                  cases::OffsetOf(view.shape, position) * SizeOf(view.dtype),
              &bits, sizeof(bits));
  return *this;
}

Fault& Fault::Slots(const std::vector<int64_t>& slots) {
  const TensorView view = View(TensorId::kSlots);
  EXPECT_EQ(static_cast<int64_t>(slots.size()), view.shape.ElementCount());
  for (size_t i = 0; i < slots.size(); ++i) {
    StoreSlot(view, cases::OffsetOf(view.shape, static_cast<int64_t>(i)), slots[i]);
  }
  return *this;
}

void Fault::ExpectRight() { ExpectRight(TargetsAndPaths()); }

void Fault::ExpectRight(const std::vector<Variant>& variants) {
  problem_->ResetOutputs();
  reference::RunExact(problem_->ReferenceProblem());
  EXPECT_FALSE(problem_->Compare().ok()) << "the reference wrote nothing";
  for (const Variant& variant : variants) EXPECT_TRUE(SameBits(*problem_, variant));
}

std::vector<double> Fault::Written(TensorId cache) const {
  const TensorView view = View(cache);
  const TensorView slots = View(TensorId::kSlots);
  const cases::Case& c = description();
  const bool is_pa_nz = c.layout == cases::Layout::kPaNz;
  std::vector<double> values;
  for (int64_t t = 0; t < c.tokens.total(); ++t) {
    int64_t block = t / c.tokens.sequence;
    int64_t row = t % c.tokens.sequence;
    if (c.slot_mode == SlotMode::kSlotPerToken) {
      const int64_t slot = LoadSlot(slots, t);
      if (slot < 0) continue;
      block = slot / c.block_size;
      row = slot % c.block_size;
    } else {
      row += LoadSlot(slots, block);
    }
    const int64_t width = view.shape.dims[3];  // a chunk, or a head
    for (int64_t i = 0; i < c.heads.k * c.head_dim; ++i) {
      const std::vector<int64_t> nz = {block, i / width, row, i % width};
      const std::vector<int64_t> nd = {block, row, i / width, i % width};
      values.push_back(Load(view, OffsetOf(view, is_pa_nz ? nz : nd)));
    }
  }
  return values;
}

void Fault::ExpectCodes(TensorId cache, const Codes& expected) const {
  const std::vector<double> values = Written(cache);
  ExpectSameCodes(std::string(cases::Name(cache)), {values.begin(), values.end()}, expected);
}

void Fault::ExpectCodes(TensorId cache, const std::vector<int>& all) const {
  const std::vector<double> values = Written(cache);
  EXPECT_EQ(std::vector<int>(values.begin(), values.end()), all) << cases::Name(cache);
}

double Fault::Value(TensorId output, std::initializer_list<int64_t> at) const {
  const TensorView view = View(output);
  std::vector<int64_t> index(at);
  if (index.size() == 3 && view.shape.rank == 4) {  // [batch, sequence, head, channel]
    const int64_t token = index[0];
    index[0] = token % description().tokens.sequence;
    index.insert(index.begin(), token / description().tokens.sequence);
  }
  return Load(view, OffsetOf(view, index));
}

void Fault::ExpectSpots(TensorId output, const std::vector<Spot>& spots) const {
  const DType dtype = View(output).dtype;
  for (const Spot& spot : spots) {
    const double found = Value(output, {spot.at[0], spot.at[1], spot.at[2]});
    EXPECT_TRUE(IsNear(dtype, found, spot.value))
        << cases::Name(output) << "[" << spot.at[0] << ", " << spot.at[1] << ", " << spot.at[2]
        << "]: found " << found << ", expected " << spot.value;
  }
}

void Fault::ExpectHead(TensorId output, int64_t token, int64_t head,
                       const Generator& expected) const {
  std::vector<Spot> spots;
  for (int64_t d = 0; d < description().head_dim; ++d) {
    spots.push_back({{token, head, d}, expected(d)});
  }
  ExpectSpots(output, spots);
}

void Fault::ExpectToldApart(const std::string& what, const FaultyRun& faulty) {
  problem_->ResetOutputs();
  faulty(problem_->ReferenceProblem());
  const Result<Plan> plan = problem_->MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Status status = plan->Run(problem_->tensors(), problem_->tokens());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(problem_->Compare().ok())
      << "not told apart: " << what << "\n  case: " << cases::PrintCase(description());
}

TensorView& ViewOf(reference::Problem& p, TensorId id) {
  switch (id) {
    case TensorId::kX:
      return p.x;
    case TensorId::kQGamma:
      return p.q_gamma;
    case TensorId::kKGamma:
      return p.k_gamma;
    case TensorId::kCos:
      return p.cos;
    case TensorId::kSin:
      return p.sin;
    case TensorId::kSlots:
      return p.slots;
    case TensorId::kKScale:
      return p.k_cache.scale;
    case TensorId::kVScale:
      return p.v_cache.scale;
    case TensorId::kKOffset:
      return p.k_cache.offset;
    case TensorId::kVOffset:
      return p.v_cache.offset;
    case TensorId::kWeightScale:
      return p.weight_scale;
    case TensorId::kTokenScale:
      return p.token_scale;
    case TensorId::kBias:
      return p.bias;
    case TensorId::kQOut:
      return p.q_out;
    case TensorId::kQBeforeQuant:
      return p.q_before_quant;
    case TensorId::kKOut:
      return p.k_out;
    case TensorId::kVOut:
      return p.v_out;
    case TensorId::kKCache:
      return p.k_cache.data;
    case TensorId::kVCache:
      return p.v_cache.data;
    default:
      throw std::logic_error("a tensor of op=fused");
  }
}

FaultyRun WithSlots(std::vector<int64_t> slots) {
  return [slots = std::move(slots)](reference::Problem p) mutable {
    p.slots = {DType::kInt64, StridedShape::Contiguous({static_cast<int64_t>(slots.size())}),
               slots.data()};
    reference::RunExact(p);
  };
}

FaultyRun WithPackedStrides(TensorId id) {
  return [id](reference::Problem p) {
    ViewOf(p, id).shape.MakeContiguous();
    reference::RunExact(p);
  };
}

bool IsNear(DType dtype, double found, double expected) {
  if (std::isnan(expected) || std::isnan(found)) return std::isnan(expected) == std::isnan(found);
  if (std::isinf(expected) || std::isinf(found)) return found == expected;
  const int mantissa_bits = dtype == DType::kFloat16 ? 10 : 7;
  const int exponent = expected == 0 ? -24 : std::ilogb(expected);
  const double unit = std::ldexp(1.0, std::max(exponent - mantissa_bits, -24));
  return std::abs(found - expected) <= 1e-5 * std::abs(expected) + unit;
}

std::string RefusalOf(const Result<Plan>& plan) {
  EXPECT_FALSE(plan.ok());
  return plan.ok() ? "" : plan.status().message();
}

}  // namespace qkvfuse::testing
