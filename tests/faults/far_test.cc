// Faults of 32-bit addresses: every stride of every tensor beyond 2^31 elements, over memory of
// which only the touched pages exist.
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "cases/fill.h"
#include "tests/faults/fault.h"
#include "tests/support/sparse_memory.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;
constexpr int64_t kBeyond = int64_t{1} << 31;

TEST(Faults, C01) {
  Fault fault(
      "op=qnr dtype=fp16 heads=1/1 head_dim=128 tokens=1 k_cache=int8 v_cache=int8 layout=paged "
      "block_size=16");
  constexpr int64_t kBlocks = 1048583;
  constexpr int64_t kSlot = 16777300;
  constexpr int64_t kOffset = 2147494400;  // bytes
  static_assert(kSlot * 128 == kOffset && kOffset > INT32_MAX);
  static_assert(static_cast<int32_t>(uint32_t{kOffset}) == -2147472896);  // the faulty address
  QkvRmsNormRopeCacheSpec spec = fault.problem().QnrSpec();
  spec.k_cache.layout = spec.v_cache.layout = PagedNhd(kBlocks, 16, 1, 128);
  for (const Variant& variant : TargetsAndPaths()) {
    const SparseMemory k(kBlocks * 16 * 128);
    const SparseMemory v(kBlocks * 16 * 128);
    ASSERT_TRUE(k.is_mapped() && v.is_mapped());
    Tensors tensors = fault.problem().tensors();
    tensors.slots = &kSlot;
    tensors.k_cache = k.data();
    tensors.v_cache = v.data();
    const Result<Plan> plan = MakePlan(spec, {true, variant.path, variant.target});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Status status = plan->Run(tensors, 1);
    ASSERT_TRUE(status.ok()) << status.message();
    const std::pair<const SparseMemory*, Codes> caches[] = {
        {&k,
         {{-26, 14, 6, -5, 16, -8, 2, 7, -9, -14, 7, -5, 6, -10, -2, -1},
          {-2, -4, -1, -6, -5, 1, -26, 7},
          0xA49C0521D0B77107U}},
        {&v,
         {{71, 86, -71, -39, -16, 2, 17, 29, 39, -30, -17, -24, 10, 33, 50, 62},
          {-2, 30, 54, 69, -63, -36, -16, 0},
          0xA096CEE9076A522FU}}};
    for (const auto& [cache, codes] : caches) {
      // All other pages are untouched, those at the faulty address included.
      EXPECT_EQ(cache->WrittenPages(), std::vector<size_t>{kOffset / 4096});
      const auto* const row = reinterpret_cast<const int8_t*>(cache->data()) + kOffset;
      ExpectSameCodes("cache", {row, row + 128}, codes);
    }
  }
}

// The tensors of a call as a door has them, each in turn moved to strides beyond 2^31 elements.

// A packed view with the sizes that the operator's function takes.
TensorView DoorView(const cases::Case& c, const cases::NamedView& named) {
  TensorView view = named.view;
  const StridedShape& s = view.shape;
  const bool is_row = s.rank == 4 && named.id != TensorId::kKCache && named.id != TensorId::kVCache;
  const bool is_table = named.id == TensorId::kCos || named.id == TensorId::kSin;
  const int64_t tokens = c.tokens.total();
  if (c.is_qnr() && is_row) {
    view.shape = StridedShape::Contiguous({tokens, s.dims[2] * s.dims[3]});
  } else if (c.is_qnr() && is_table) {
    view.shape = StridedShape::Contiguous({tokens, s.dims[2]});
  } else if (named.id == TensorId::kX) {
    view.shape = StridedShape::Contiguous({s.dims[0], s.dims[1], s.dims[2] * s.dims[3]});
  } else if (is_table) {
    view.shape = StridedShape::Contiguous({s.dims[0], s.dims[1], 1, s.dims[2]});
  }
  return view;
}

template <typename Arguments>
using Members = std::vector<std::pair<TensorId, const TensorView * Arguments::*>>;

using QnrArguments = QkvRmsNormRopeCacheArguments;
using DrqArguments = DequantRopeQuantKvcacheArguments;

const Members<QnrArguments> kQnrMembers = {
    {TensorId::kX, &QnrArguments::qkv},
    {TensorId::kQGamma, &QnrArguments::q_gamma},
    {TensorId::kKGamma, &QnrArguments::k_gamma},
    {TensorId::kCos, &QnrArguments::cos},
    {TensorId::kSin, &QnrArguments::sin},
    {TensorId::kSlots, &QnrArguments::index},
    {TensorId::kKScale, &QnrArguments::k_scale},
    {TensorId::kVScale, &QnrArguments::v_scale},
    {TensorId::kKOffset, &QnrArguments::k_offset},
    {TensorId::kVOffset, &QnrArguments::v_offset},
    {TensorId::kQOut, &QnrArguments::q_out},
    {TensorId::kQBeforeQuant, &QnrArguments::q_out_before_quant},
    {TensorId::kKOut, &QnrArguments::k_out_before_quant},
    {TensorId::kVOut, &QnrArguments::v_out_before_quant},
    {TensorId::kKCache, &QnrArguments::k_cache},
    {TensorId::kVCache, &QnrArguments::v_cache}};

const Members<DrqArguments> kDrqMembers = {{TensorId::kX, &DrqArguments::x},
                                           {TensorId::kCos, &DrqArguments::cos},
                                           {TensorId::kSin, &DrqArguments::sin},
                                           {TensorId::kSlots, &DrqArguments::indices},
                                           {TensorId::kKScale, &DrqArguments::scale_k},
                                           {TensorId::kVScale, &DrqArguments::scale_v},
                                           {TensorId::kKOffset, &DrqArguments::offset_k},
                                           {TensorId::kVOffset, &DrqArguments::offset_v},
                                           {TensorId::kWeightScale, &DrqArguments::weight_scale},
                                           {TensorId::kTokenScale, &DrqArguments::activation_scale},
                                           {TensorId::kBias, &DrqArguments::bias},
                                           {TensorId::kQOut, &DrqArguments::q_out},
                                           {TensorId::kKOut, &DrqArguments::k_out},
                                           {TensorId::kVOut, &DrqArguments::v_out},
                                           {TensorId::kKCache, &DrqArguments::k_cache},
                                           {TensorId::kVCache, &DrqArguments::v_cache}};

// The view with one axis stretched so that its last element lies beyond 2^31 elements.
TensorView Stretched(TensorView view, size_t axis) {
  const int64_t steps = view.shape.dims[axis] - 1;
  view.shape.strides[axis] = kBeyond / steps + 4096;
  return view;
}

int64_t Bytes(const TensorView& view) {
  int64_t last = 0;
  for (size_t a = 0; a < static_cast<size_t>(view.shape.rank); ++a) {
    last += (view.shape.dims[a] - 1) * view.shape.strides[a];
  }
  return (last + 1) * SizeOf(view.dtype);
}

void CopyElements(const TensorView& from, const TensorView& to) {
  const auto size = SizeOf(from.dtype);
  for (int64_t i = 0; i < from.shape.ElementCount(); ++i) {
    std::memcpy(static_cast<char*>(to.data) + cases::OffsetOf(to.shape, i) * size,
                static_cast<const char*>(from.data) + cases::OffsetOf(from.shape, i) * size,
                static_cast<size_t>(size));
  }
}

// Runs the call with the arguments as they are; outputs must be right.
template <typename Arguments>
void ExpectSame(cases::Problem& problem, const Arguments& arguments, const std::string& what,
                const std::function<void()>& copy_back) {
  DoorRules rules;
  rules.any_layout = true;
  const auto call = Bind(arguments, rules);
  ASSERT_TRUE(call.ok()) << what << ": " << call.status().message();
  for (const Path path : {Path::kAuto, Path::kGeneral}) {
    problem.ResetLibraryOutputs();
    const auto plan = MakePlan(*call, {true, path, ""});
    ASSERT_TRUE(plan.ok()) << what << ": " << plan.status().message();
    const Status status = plan->Run(call->tensors, call->tokens);
    ASSERT_TRUE(status.ok()) << what << ": " << status.message();
    copy_back();
    const Status same = problem.Compare();
    EXPECT_TRUE(same.ok()) << what << ": " << same.message();
  }
}

template <typename Arguments>
void StretchEach(const std::string& line, const Members<Arguments>& members, Arguments arguments) {
  const auto problem = MakeSolvedProblem(CaseOf(line));
  ASSERT_NE(problem, nullptr);
  std::vector<cases::NamedView> named = problem->Inputs();
  for (const cases::NamedView& output : problem->Outputs()) named.push_back(output);
  std::vector<TensorView> views(named.size());
  for (size_t i = 0; i < named.size(); ++i) {
    views[i] = DoorView(problem->description(), named[i]);
    for (const auto& [id, member] : members) {
      if (id == named[i].id) arguments.*member = &views[i];
    }
  }
  ExpectSame(*problem, arguments, "packed", [] {});
  for (size_t i = 0; i < named.size(); ++i) {
    const TensorView packed = views[i];
    for (size_t axis = 0; axis < static_cast<size_t>(packed.shape.rank); ++axis) {
      if (packed.shape.dims[axis] == 1) continue;
      views[i] = Stretched(packed, axis);
      const SparseMemory memory(static_cast<size_t>(Bytes(views[i])));
      ASSERT_TRUE(memory.is_mapped());
      views[i].data = memory.data();
      CopyElements(packed, views[i]);
      const bool is_output = named[i].id >= TensorId::kQOut;
      ExpectSame(*problem, arguments, std::string(named[i].name) + " axis " + std::to_string(axis),
                 [&] {
                   if (is_output) CopyElements(views[i], packed);
                 });
    }
    views[i] = packed;
  }
}

// Where one product overflowed, every one is tried: each axis of each tensor of both operators.
TEST(Faults, C01KindQnr) {
  for (const char* layout : {"layout=pa_nz", "layout=paged k_cache=16bit", "layout=paged"}) {
    QnrArguments arguments;
    const std::array<int64_t, 4> size = {2, 2, 7, 64};
    const std::array<int64_t, 3> heads = {3, 2, 2};
    arguments.qkv_size = {size.data(), 4};
    arguments.head_nums = {heads.data(), 3};
    const bool is_pa_nz = std::string(layout) == "layout=pa_nz";
    arguments.cache_mode = is_pa_nz ? "PA_NZ" : "PA";
    const bool has_k_offset = std::string(layout).find("16bit") == std::string::npos;
    StretchEach(std::string("op=qnr dtype=bf16 heads=3/2 head_dim=64 tokens=2x2 before_quant=1 "
                            "block_size=4 v_cache=int8+offset ") +
                    (has_k_offset ? "k_cache=int8+offset " : "") + layout,
                kQnrMembers, arguments);
  }
}

TEST(Faults, C01KindDrq) {
  for (const bool is_paged : {true, false}) {
    DrqArguments arguments;
    const std::array<int64_t, 3> splits = {3 * 64, 2 * 64, 2 * 64};
    arguments.size_splits = {splits.data(), 3};
    arguments.kv_output = true;
    arguments.cache_mode = is_paged ? "page" : "contiguous";
    StretchEach(std::string("op=drq dtype=fp16 x=int32 heads=3/2 head_dim=64 tokens=2x2 "
                            "kv_output=1 token_scale=1 bias=bf16 block_size=4 "
                            "k_cache=int8+offset v_cache=int8+offset layout=") +
                    (is_paged ? "paged" : "contiguous"),
                kDrqMembers, arguments);
  }
}

}  // namespace
}  // namespace qkvfuse::testing
