// Faults in the address of a cache row: the size of a block, where that size comes from, the width
// of the rows.
#include <bit>
#include <cstring>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;

// The caches' views with blocks of another number of rows, the strides unchanged.
FaultyRun WithBlockSize(int64_t block_size) {
  return [block_size](reference::Problem p) {
    const size_t axis = p.cache_order == reference::CacheOrder::kPaNz ? 2 : 1;
    p.k_cache.data.shape.dims[axis] = block_size;
    p.v_cache.data.shape.dims[axis] = block_size;
    reference::RunExact(p);
  };
}

// The caches as if their blocks had another number of rows, packed.
FaultyRun WithRepackedBlocks(int64_t block_size) {
  return [block_size](reference::Problem p) {
    for (TensorView* const view : {&p.k_cache.data, &p.v_cache.data}) {
      const auto& dims = view->shape.dims;
      const int64_t slots = dims[0] * dims[2];
      view->shape = StridedShape::Contiguous({slots / block_size, dims[1], block_size, dims[3]});
    }
    reference::RunExact(p);
  };
}

TEST(Faults, C07) {
  Fault fault(
      "op=qnr dtype=fp16 heads=1/1 head_dim=64 tokens=5 k_cache=16bit v_cache=16bit layout=pa_nz "
      "block_size=48 blocks=3");
  fault.Slots({47, 48, 95, 96, 100});
  fault.ExpectRight();
  const double k[5][4] = {{-0.454345703, -0.266357422, -0.297363281, -0.448486328},
                          {0.0676879883, -0.0725708008, -0.0257873535, -0.488525391},
                          {0.551757812, 0.0118408203, 0.856933594, -0.301269531},
                          {0.771972656, -0.340576172, 0.283935547, -0.883300781},
                          {-0.0859985352, -0.263916016, 0.444580078, 0.0939941406}};
  const double v[5][4] = {{6.5, -6.875, -4.5625, -2.25},
                          {-4.4375, -2.125, 0.1875, 2.5},
                          {0.3125, 2.625, 4.9375, 7.25},
                          {5.0625, 7.375, -6, -3.6875},
                          {-5.875, -3.5625, -1.25, 1.0625}};
  const int64_t places[5] = {752, 3072, 3824, 6144, 6208};
  const std::vector<double> written_k = fault.Written(TensorId::kKCache);
  for (size_t t = 0; t < 5; ++t) {
    // [block, chunk, row, channel of the chunk]
    const int64_t at = places[t];
    for (int64_t d = 0; d < 4; ++d) {
      const auto found_k =
          fault.Value(TensorId::kKCache, {at / 3072, at % 3072 / 768, at % 768 / 16, d});
      const auto found_v =
          fault.Value(TensorId::kVCache, {at / 3072, at % 3072 / 768, at % 768 / 16, d});
      EXPECT_TRUE(IsNear(DType::kFloat16, found_k, k[t][d])) << found_k;
      EXPECT_EQ(found_v, v[t][d]);
    }
    // Channel 17 lies 769 elements on: a chunk of 48 rows, and one.
    const double channel_17 = fault.Value(TensorId::kKCache, {at / 3072, 1, at % 768 / 16, 1});
    EXPECT_EQ(channel_17, written_k[t * 64 + 17]);
  }
  fault.ExpectToldApart("block size rounded up to 64", WithBlockSize(64));
}

// Every block size around the powers of two, in every layout.
TEST(Faults, C07Kind) {
  for (const int64_t block_size : {1, 3, 5, 6, 7, 9, 12, 15, 17, 24, 31, 33, 48, 63, 65}) {
    const auto above = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(block_size)));
    const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(block_size)));
    for (const char* line :
         {"op=qnr dtype=fp16 layout=pa_nz k_cache=16bit v_cache=int8+offset",
          "op=qnr dtype=bf16 layout=paged slot_dtype=int32", "op=drq dtype=bf16 layout=paged",
          "op=drq dtype=fp16 x=16bit layout=pa_nz slot_dtype=int64"}) {
      // So many blocks that the faulty addresses stay inside.
      Fault fault(std::string(line) + " heads=1/1 head_dim=32 tokens=9 blocks=12 block_size=" +
                  std::to_string(block_size));
      const int64_t b = block_size;
      if (b > 1) {
        fault.Slots({0, b - 1, b, 2 * b - 1, 2 * b, 2 * b + 1, 3 * b - 1, 3 * b, 4 * b + 1});
      }
      fault.ExpectRight();
      if (above == block_size) continue;
      fault.ExpectToldApart("rounded up", WithBlockSize(above));
      fault.ExpectToldApart("rounded down", WithBlockSize(below));
    }
  }
}

TEST(Faults, C08) {
  Fault fault(
      "op=qnr dtype=fp16 heads=1/2 head_dim=128 tokens=1x3 k_cache=int8 v_cache=int8 layout=pa_nz "
      "block_size=32 blocks=3");
  fault.Fill(TensorId::kKScale, Cyc(9, 7, 128)).Slots({70, 31, 32});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache, {{-15, 9, 4, -4, 12, -6, 2, 5, -7, -8, 4, -3, 4, -7, -2, -1},
                                        {4, -5, 1, -2, 8, -7, 7, 6},
                                        0x5782B9B8936661BAU});
  fault.ExpectCodes(TensorId::kVCache,
                    {{38, 60, 75, -58, -32, -12, 4, 17, 28, 37, -27, -57, -16, 11, 31, 46},
                     {40, -42, -26, -13, -1, 33, 56, 71},
                     0x09C00595F1005265U});
  // Where the elements lie: head 0 channel 0, and head 1 channel 33.
  const std::vector<double> codes = fault.Written(TensorId::kKCache);
  const int64_t places[3][2] = {{16576, 21697}, {992, 6113}, {8192, 13313}};
  for (size_t t = 0; t < 3; ++t) {
    for (const size_t i : {0U, 1U}) {
      const int64_t at = places[t][i];
      const double found =
          fault.Value(TensorId::kKCache, {at / 8192, at % 8192 / 1024, at % 1024 / 32, at % 32});
      EXPECT_EQ(found, codes[t * 256 + (i == 0 ? 0 : 128 + 33)]);
    }
  }
  fault.ExpectToldApart("block size from dimension 1", WithRepackedBlocks(8));
}

// The block size from anything but dimension 2: each of the other numbers of the call.
TEST(Faults, C08Kind) {
  for (const char* line : {"op=qnr dtype=fp16 heads=1/2 head_dim=128 tokens=3x2 layout=pa_nz",
                           "op=drq dtype=bf16 heads=1/2 head_dim=128 tokens=3x2 layout=pa_nz"}) {
    Fault fault(std::string(line) + " block_size=64 blocks=6");
    fault.ExpectRight();
    for (const int64_t wrong : {1, 2, 3, 4, 6, 8, 16, 32, 128}) {
      fault.ExpectToldApart("block size " + std::to_string(wrong), WithRepackedBlocks(wrong));
    }
  }
}

constexpr char kC17Line[] =
    "op=qnr dtype=bf16 heads=3/1 head_dim=46 tokens=3 layout=paged block_size=16 blocks=2 ";

TEST(Faults, C17) {
  Fault fault(std::string(kC17Line) + "k_cache=int8 v_cache=int8");
  fault.Slots({16, 1, 17});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache, {{21, 8, -2, 1, -6, 0, -2, -3, -6, 3, -13, 14, 5, 6, 4, -2},
                                        {-7, -4, -4, -2, 8, -4, 8, -11},
                                        0xCB6C3F2D6DFEF242U});
  fault.ExpectCodes(TensorId::kVCache,
                    {{-83, -37, -6, 16, 32, 45, -45, -27, -13, 0, 10, 73, 88, -69, -38, -15},
                     {9, 23, 34, -40, -26, -13, -9, 22},
                     0xFC2B6F0AF2E26462U});
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, 0.601508975},
                                      {{0, 0, 23}, 0.208365854},
                                      {{0, 2, 45}, -0.359174664},
                                      {{2, 0, 1}, -0.213752654},
                                      {{2, 2, 22}, -0.747701262},
                                      {{1, 1, 44}, 0.560497048}});
  // Slot 1 starts at byte 46: a tail store of 16 bytes would end in slot 2.
  fault.ExpectToldApart("tail store of 16 bytes", [](const reference::Problem& p) {
    reference::RunExact(p);
    std::memset(static_cast<char*>(p.k_cache.data.data) + 92, 0, 2);
  });
}

TEST(Faults, C17SixteenBitCaches) {
  Fault fault(std::string(kC17Line) + "k_cache=16bit v_cache=16bit");
  fault.Slots({16, 1, 17});
  fault.ExpectRight();
  const std::vector<double> k = fault.Written(TensorId::kKCache);
  const double first[] = {0.65234375, 0.298828125, -0.0942382812, 0.0541992188};
  for (size_t d = 0; d < 4; ++d) EXPECT_TRUE(IsNear(DType::kBFloat16, k[d], first[d])) << k[d];
}

// Rows of every width that no vector divides: the bytes beside each row must survive.
TEST(Faults, C17Kind) {
  for (int64_t head_dim = 2; head_dim <= 66; head_dim += 2) {
    for (const char* line : {"op=qnr dtype=bf16 k_cache=int8 v_cache=16bit before_quant=1",
                             "op=qnr dtype=fp16 k_cache=16bit v_cache=int8+offset",
                             "op=drq dtype=fp16 kv_output=1 bias=fp16"}) {
      Fault fault(std::string(line) + " layout=paged heads=3/1 tokens=3 block_size=5 head_dim=" +
                  std::to_string(head_dim));
      fault.ExpectRight();
      fault.ExpectToldApart("one more byte", [](const reference::Problem& p) {
        reference::RunExact(p);
        auto* const behind =
            static_cast<char*>(p.q_out.data) + p.q_out.shape.ElementCount() * SizeOf(p.q_out.dtype);
        *behind ^= 1;
      });
    }
  }
}

}  // namespace
}  // namespace qkvfuse::testing
