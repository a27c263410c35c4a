// Faults in the rotation and its wiring: rows left out, offsets of padded tables, gammas and tables
// exchanged, steps missing or doubled.
#include <algorithm>
#include <bit>
#include <utility>

#include "tests/faults/fault.h"

namespace qkvfuse::testing {
namespace {

using cases::TensorId;

TEST(Faults, C23) {
  // [3, 192] and [3, 1, 192] are one memory; the door's tests tell their shapes apart.
  Fault fault(
      "op=drq dtype=fp16 x=16bit heads=1/1 head_dim=64 tokens=3x1 layout=contiguous block_size=4 "
      "blocks=3 kv_output=1");
  fault.Fill(TensorId::kKScale, Cyc(9, 4, 16)).Slots({0, 2, 1});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache,
                    {{-13, -7, -6, -8, 9, 4, -1, 3, 5, 19, -18, 7, -8, -9, -2, 1},
                     {-9, -3, -1, -13, 2, 3, 0, 3},
                     0x4B76A1EA637F95A1U});
  fault.ExpectCodes(TensorId::kVCache,
                    {{104, -88, -49, -21, 0, 17, 30, 41, -34, -20, -8, 9, 37, 55, 69, -47},
                     {55, 71, -62, -36, -15, 1, 15, 26},
                     0xF0021A01C7003A63U});
  const double first_4[3][4] = {{9.421875, 5.09375, 2.55078125, 3.01855469},
                                {2.9609375, 4.26464844, 0.0712890625, 3.65136719},
                                {-2.21777344, -2.390625, -3.71972656, 4.93945312}};
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t d = 0; d < 4; ++d) {
      fault.ExpectSpots(TensorId::kQOut, {{{b, 0, d}, first_4[b][d]}});
    }
  }
  fault.ExpectToldApart("rows from 1 on skipped",
                        [](const reference::Problem& p) { reference::RunExact(p, 0, 1); });
}

// Every pair of a few batches and sequence lengths: no row and no head is left out.
TEST(Faults, C23Kind) {
  for (const char* line : {"op=drq dtype=fp16 x=16bit layout=contiguous kv_output=1",
                           "op=drq dtype=bf16 x=int32 layout=paged token_scale=1 bias=fp32",
                           "op=qnr dtype=bf16 k_cache=16bit v_cache=int8 before_quant=1"}) {
    for (const int64_t batch : {1, 2, 3, 8}) {
      for (const int64_t sequence : {1, 2, 5}) {
        for (const char* heads : {"1/1", "3/2"}) {
          Fault fault(std::string(line) + " head_dim=32 block_size=16 heads=" + heads +
                      " tokens=" + std::to_string(batch) + "x" + std::to_string(sequence));
          fault.ExpectRight();
          const int64_t tokens = batch * sequence;
          for (int64_t left_out = 0; left_out < tokens; ++left_out) {
            fault.ExpectToldApart("token " + std::to_string(left_out),
                                  [=](const reference::Problem& p) {
                                    reference::RunExact(p, 0, left_out);
                                    reference::RunExact(p, left_out + 1, tokens);
                                  });
          }
          if (fault.description().heads.q == 1) continue;
          fault.ExpectToldApart("one q head only", [](reference::Problem p) {
            p.q_out.shape.strides[2] = 0;  // every head on the first one
            reference::RunExact(p);
          });
        }
      }
    }
  }
}

constexpr char kC36Rest[] = " tokens=2 dtype=bf16 op=qnr k_cache=int8 v_cache=int8 layout=pa_nz";

// The second half of a table read from where it would lie behind a padded first one. The tail
// wraps: a real kernel would read past the row.
FaultyRun WithPaddedHalf(TensorId id, int64_t padded_half) {
  return [=](reference::Problem p) {
    TensorView& table = ViewOf(p, id);
    const int64_t head_dim = p.head_dim;
    const auto* const bits = static_cast<const uint16_t*>(table.data);
    std::vector<uint16_t> moved;
    for (int64_t i = 0; i < table.shape.ElementCount(); ++i) {
      const int64_t d = i % head_dim;
      const bool is_second = d >= head_dim / 2;
      const int64_t from = is_second ? (d - head_dim / 2 + padded_half) % head_dim : d;
      moved.push_back(bits[i - d + from]);
    }
    table.data = moved.data();
    reference::RunExact(p);
  };
}

TEST(Faults, C36) {
  Fault fault(std::string("heads=1/1 head_dim=192 block_size=32 blocks=1") + kC36Rest);
  fault.Fill(TensorId::kKScale, Cyc(9, 7, 128)).Slots({1, 0});
  fault.ExpectRight();
  fault.ExpectCodes(TensorId::kKCache,
                    {{3, 1, -4, -14, -7, -3, -1, -2, -4, 14, -4, -4, 11, -1, 0, 0},
                     {-8, 2, 1, 5, 14, 3, 8, 0},
                     0x7D9BBE1DB984989BU});
  fault.ExpectCodes(TensorId::kVCache,
                    {{38, 60, 75, -58, -32, -12, 4, 17, 28, 37, -27, -57, -16, 11, 31, 46},
                     {15, 26, 34, -94, -46, -13, 10, 27},
                     0x01CEC00BF8111C67U});
  fault.ExpectSpots(TensorId::kQOut, {{{0, 0, 0}, -0.134672632},
                                      {{0, 0, 95}, -0.317780158},
                                      {{0, 0, 96}, -0.177523015},
                                      {{0, 0, 97}, -0.349166184},
                                      {{0, 0, 191}, -0.921659114},
                                      {{1, 0, 1}, -1.12355647},
                                      {{1, 0, 95}, 0.100086003},
                                      {{1, 0, 190}, -0.947870171}});
  for (const TensorId id : {TensorId::kCos, TensorId::kSin}) {
    fault.ExpectToldApart("half 128", WithPaddedHalf(id, 128));
  }
}

// Every width whose half is no power of two, both tables, both operators.
TEST(Faults, C36Kind) {
  for (int64_t head_dim = 6; head_dim <= 320; head_dim += head_dim < 66 ? 2 : 16) {
    const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(head_dim))) / 2;
    for (const char* op : {"op=qnr dtype=fp16", "op=drq x=int32 dtype=bf16"}) {
      Fault fault(std::string(op) +
                  " layout=paged heads=2/1 tokens=2 head_dim=" + std::to_string(head_dim));
      fault.ExpectRight();
      if (padded == head_dim / 2) continue;
      for (const TensorId id : {TensorId::kCos, TensorId::kSin}) {
        fault.ExpectToldApart("padded half", WithPaddedHalf(id, padded));
      }
    }
  }
}

TEST(Faults, C39) {
  Fault fault(
      "op=qnr dtype=fp16 heads=1/1 head_dim=32 tokens=1 epsilon=0 k_cache=16bit v_cache=16bit "
      "layout=pa_nz block_size=16 blocks=1");
  fault.Fill(TensorId::kX, Runs(32, {4, 4, 3}))
      .Fill(TensorId::kQGamma, Constant(2))
      .Fill(TensorId::kKGamma, Constant(3))
      .Fill(TensorId::kCos, Constant(0))
      .Fill(TensorId::kSin, Constant(1))
      .Slots({0});
  fault.ExpectRight();
  fault.ExpectHead(TensorId::kQOut, 0, 0, Runs(16, {-2, 2}));
  std::vector<double> k(32, -3);
  std::fill(k.begin() + 16, k.end(), 3);
  EXPECT_EQ(fault.Written(TensorId::kKCache), k);
  EXPECT_EQ(fault.Written(TensorId::kVCache), std::vector<double>(32, 3));
  EXPECT_NE(fault.Value(TensorId::kQOut, {0, 0, 16}), -2) << "rotated twice";
}

// A wiring fault: what is connected wrongly.
struct Wiring {
  const char* what;
  FaultyRun run;
};

// The outputs of a run become the x of the next one.
FaultyRun Twice(bool with_norm) {
  return [=](reference::Problem p) {
    std::vector<uint16_t> x(static_cast<size_t>(p.x.shape.ElementCount()));
    reference::Problem first = p;
    first.k_cache.data.data = nullptr;
    first.v_cache.data.data = nullptr;
    TensorView* const outputs[] = {&first.q_out, &first.k_out, &first.v_out};
    const int64_t heads[] = {p.q_heads, p.k_heads, p.v_heads};
    int64_t head = 0;
    for (size_t i = 0; i < 3; ++i) {
      *outputs[i] = p.x;
      outputs[i]->data = x.data() + head * p.head_dim;
      head += heads[i];
    }
    reference::RunExact(first);
    p.x.data = x.data();
    p.has_norm = p.has_norm && with_norm;
    reference::RunExact(p);
  };
}

// The v heads take the place of the k heads, sinks included.
void RotatedV(reference::Problem p) {
  reference::Problem v_as_k = p;
  v_as_k.x.data = static_cast<char*>(p.x.data) + p.k_heads * p.head_dim * SizeOf(p.x.dtype);
  v_as_k.k_cache = p.v_cache;
  v_as_k.k_out = p.v_out;
  v_as_k.v_heads = 0;
  v_as_k.q_out.data = nullptr;
  v_as_k.q_before_quant.data = nullptr;
  reference::RunExact(v_as_k);
  p.v_heads = 0;
  reference::RunExact(p);
}

template <typename Change>
FaultyRun Changed(const Change& change) {
  return [=](reference::Problem p) {
    change(p);
    reference::RunExact(p);
  };
}

TEST(Faults, C39Kind) {
  using P = reference::Problem;
  const Wiring wirings[] = {
      {"norm skipped", Changed([](P& p) { p.has_norm = false; })},
      {"gammas exchanged", Changed([](P& p) { std::swap(p.q_gamma, p.k_gamma); })},
      {"q_gamma for both", Changed([](P& p) { p.k_gamma = p.q_gamma; })},
      {"k_gamma for both", Changed([](P& p) { p.q_gamma = p.k_gamma; })},
      {"tables exchanged", Changed([](P& p) { std::swap(p.cos, p.sin); })},
      {"cos for both", Changed([](P& p) { p.sin = p.cos; })},
      {"scales exchanged", Changed([](P& p) { std::swap(p.k_cache.scale, p.v_cache.scale); })},
      {"offsets exchanged", Changed([](P& p) { std::swap(p.k_cache.offset, p.v_cache.offset); })},
      {"caches exchanged", Changed([](P& p) { std::swap(p.k_cache.data, p.v_cache.data); })},
      {"dense k and v exchanged", Changed([](P& p) { std::swap(p.k_out, p.v_out); })},
      {"rotated twice", Twice(false)},
      {"normalised and rotated twice", Twice(true)},
      {"v is normalised and rotated too", RotatedV},
  };
  for (const char* rest : {"dtype=fp16 head_dim=64", "dtype=bf16 head_dim=46 layout=paged"}) {
    Fault fault(std::string("op=qnr heads=2/2 tokens=3 k_cache=int8+offset v_cache=int8+offset "
                            "before_quant=1 block_size=4 ") +
                rest);
    fault.ExpectRight();
    for (const Wiring& wiring : wirings) fault.ExpectToldApart(wiring.what, wiring.run);
  }
}

}  // namespace
}  // namespace qkvfuse::testing
