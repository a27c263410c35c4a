// Faults in what a slot means: padding, repeats, starts of sequences.
#include <limits>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::Case;
using cases::TensorId;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Rows 1 and 3 of x, cos and sin, which belong to padding tokens, become NaN.
void SpoilDeadRows(Fault& fault) {
  for (const TensorId id : {TensorId::kX, TensorId::kCos, TensorId::kSin}) {
    const Case& c = fault.description();
    const int64_t width = c.head_dim * (id == TensorId::kX ? c.heads.total() : 1);
    std::vector<int64_t> positions;
    for (const int64_t row : {1, 3}) {
      for (int64_t i = 0; i < width; ++i) positions.push_back(row * width + i);
    }
    fault.Set(id, positions, kNan);
  }
}

TEST(Faults, C03) {
  Fault fault(
      "op=qnr dtype=fp16 heads=2/1 head_dim=64 tokens=4 k_cache=int8+offset v_cache=int8+offset "
      "layout=pa_nz block_size=32 blocks=2");
  fault.Slots({5, -1, 2, -1});
  SpoilDeadRows(fault);
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache, {{-12, 16, 0, 7, -8, -2, 2, 4, -11, -6, 2, 6, 4, -6, -2, -4},
                                        {-16, 13, -17, 9, 2, 0, 2, 18},
                                        0xE2149C8CF0B18185U});
  fault.ExpectCodes(TensorId::kVCache,
                    {{-39, -1, 24, 42, 55, -46, -26, -12, 2, 13, 23, 118, -76, -39, -13, 7},
                     {-86, -46, -19, 2, 19, 32, 43, -33},
                     0xD283AED0ACAD0288U});
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 1.35701298}, {{0, 0, 32}, -0.239435119}});
  // Only the cache write of a padding token is skipped.
  for (const int64_t token : {1, 3}) {
    for (const int64_t head : {0, 1})
      fault.ExpectHead(TensorId::kQOut, token, head, Constant(kNan));
  }
  fault.ExpectToldApart("-1 wraps to slot 63", WithSlots({5, 63, 2, 63}));
  fault.ExpectToldApart("-1 clamps to slot 0", WithSlots({5, 0, 2, 0}));
}

// Every layout, cache type and slot type; in lenient mode any negative slot.
TEST(Faults, C03Kind) {
  for (const std::string caches : {"k_cache=int8 v_cache=int8+offset", "k_cache=16bit v_cache=int8",
                                   "k_cache=16bit v_cache=16bit"}) {
    for (const std::string layout : {"pa_nz", "paged", "contiguous slot_mode=token"}) {
      for (const std::string slot_dtype : {"int32", "int64"}) {
        for (const std::string head : {"op=qnr dtype=fp16 before_quant=1 ", "op=drq dtype=bf16 "}) {
          if (head.starts_with("op=drq") && caches.find("16bit") != std::string::npos) continue;
          Fault fault(head + caches + " x=16bit heads=2/1 head_dim=64 tokens=4 block_size=8 " +
                      "blocks=2 strict=0 layout=" + layout + " slot_dtype=" + slot_dtype);
          SpoilDeadRows(fault);
          for (const int64_t negative :
               {int64_t{-1}, int64_t{-2}, int64_t{-16}, int64_t{std::numeric_limits<int>::min()}}) {
            fault.Slots({5, negative, 2, negative});
            fault.ExpectRight();
            fault.ExpectToldApart("wraps", WithSlots({5, 15, 2, 15}));
            fault.ExpectToldApart("clamps", WithSlots({5, 0, 2, 0}));
            fault.ExpectToldApart("skips all", WithSlots({-1, -1, -1, -1}));
          }
        }
      }
    }
  }
}

// K from one token and V from another.
FaultyRun TornRow(std::vector<int64_t> k_slots, std::vector<int64_t> v_slots) {
  return [=](reference::Problem p) {
    reference::Problem k_only = p;
    k_only.v_cache.data.data = nullptr;
    WithSlots(k_slots)(k_only);
    p.k_cache.data.data = nullptr;
    WithSlots(v_slots)(p);
  };
}

std::vector<Variant> ManyThreads() {
  std::vector<Variant> variants;
  for (Variant variant : TargetsAndPaths()) {
    for (const int threads : {1, 2, 3, 4, 8}) {
      variant.threads = threads;
      variants.push_back(variant);
    }
  }
  return variants;
}

TEST(Faults, C06) {
  Fault fault(
      "op=qnr dtype=fp16 heads=1/2 head_dim=32 tokens=4 k_cache=int8 v_cache=int8 layout=pa_nz "
      "block_size=32 blocks=1 strict=0");
  fault.Fill(TensorId::kKScale, Cyc(9, 5, 128)).Slots({7, 7, 7, 3});
  for (int run = 0; run < 100; ++run) fault.ExpectRight(ManyThreads());
  const std::vector<double> k = fault.Written(TensorId::kKCache);
  const std::vector<double> v = fault.Written(TensorId::kVCache);
  const auto first_8 = [](const std::vector<double>& codes, std::ptrdiff_t token) {
    const auto begin = codes.begin() + token * 64;
    return std::vector<int>(begin, begin + 8);
  };
  EXPECT_EQ(first_8(k, 2), (std::vector<int>{7, -3, -4, -3, -3, 6, -10, -5}));
  EXPECT_EQ(first_8(v, 2), (std::vector<int>{-33, 3, 27, 45, 58, -44, -25, -9}));
  EXPECT_EQ(first_8(k, 3), (std::vector<int>{15, -3, -10, -8, 8, 2, 1, -3}));
  EXPECT_EQ(first_8(v, 3), (std::vector<int>{114, -80, -42, -15, 6, 21, 34, 44}));
  fault.ExpectToldApart("the first token wins", WithSlots({7, -1, -1, 3}));
  fault.ExpectToldApart("the second token wins", WithSlots({-1, 7, -1, 3}));
  fault.ExpectToldApart("a torn row", TornRow({-1, -1, 7, 3}, {7, -1, -1, 3}));
  fault.ExpectToldApart("the other torn row", TornRow({-1, 7, -1, 3}, {-1, -1, 7, 3}));
}

// Every pattern of equal and different slots of four tokens, in both operators.
TEST(Faults, C06Kind) {
  for (const char* line : {"op=qnr dtype=bf16 k_cache=16bit v_cache=int8 layout=paged",
                           "op=drq dtype=fp16 layout=pa_nz"}) {
    Fault fault(std::string(line) +
                " heads=1/2 head_dim=32 tokens=4 block_size=8 blocks=1 strict=0");
    for (int64_t pattern = 0; pattern < 256; ++pattern) {
      const std::vector<int64_t> slots = {pattern & 3, pattern >> 2 & 3, pattern >> 4 & 3,
                                          pattern >> 6};
      fault.Slots(slots);
      fault.ExpectRight({{AvailableTargets().front(), Path::kAuto, 4}});
      if (slots[0] != slots[3]) continue;
      std::vector<int64_t> first_wins = slots;
      first_wins[3] = -1;
      if (slots[1] == slots[0] || slots[2] == slots[0]) continue;
      fault.ExpectToldApart("the first token wins", WithSlots(first_wins));
    }
  }
}

TEST(Faults, C12) {
  Fault fault(
      "op=drq dtype=fp16 x=16bit heads=1/1 head_dim=64 tokens=2x3 layout=contiguous "
      "block_size=16 blocks=3");
  fault.Fill(TensorId::kKScale, Cyc(9, 4, 16)).Slots({5, 0});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache,
                    {{-13, -7, -6, -8, 9, 4, -1, 3, 5, 19, -18, 7, -8, -9, -2, 1},
                     {1, -5, 0, 8, 0, -6, 6, 8},
                     0xFF9B92CFD2FB72FBU});
  fault.ExpectCodes(TensorId::kVCache,
                    {{104, -88, -49, -21, 0, 17, 30, 41, -34, -20, -8, 9, 37, 55, 69, -47},
                     {37, 55, 69, -47, -25, -8, 6, 18},
                     0xB618C9E300D83B8BU});
  fault.ExpectToldApart("the largest start for all", WithSlots({5, 5}));
  fault.ExpectToldApart("one row too far", WithSlots({6, 1}));
  fault.ExpectToldApart("over the prefix", WithSlots({0, 0}));
}

// Batches of every size, in every layout that takes starts; every start but one is wrong.
TEST(Faults, C12Kind) {
  for (const char* line :
       {"op=drq dtype=bf16 x=int32 layout=contiguous", "op=drq dtype=fp16 x=16bit layout=pa_nz",
        "op=qnr dtype=bf16 layout=contiguous k_cache=16bit v_cache=int8",
        "op=qnr dtype=fp16 layout=paged"}) {
    for (const int64_t batch : {1, 2, 3, 5}) {
      for (const int64_t sequence : {1, 2, 7}) {
        Fault fault(std::string(line) + " slot_mode=start heads=1/1 head_dim=64 block_size=16 " +
                    "tokens=" + std::to_string(batch) + "x" + std::to_string(sequence));
        std::vector<int64_t> starts;
        for (int64_t b = 0; b < batch; ++b) starts.push_back((3 * b + 2) % (17 - sequence));
        fault.Slots(starts);
        fault.ExpectRight();
        for (size_t b = 0; b < starts.size(); ++b) {
          std::vector<int64_t> faulty = starts;
          for (const int64_t wrong : {int64_t{0}, starts[b] - 1, starts[b] + 1, starts[0]}) {
            if (wrong == starts[b] || wrong < 0 || wrong > 16 - sequence) continue;
            faulty[b] = wrong;
            fault.ExpectToldApart("start " + std::to_string(wrong), WithSlots(faulty));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
