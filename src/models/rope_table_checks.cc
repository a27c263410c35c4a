// What a RopeTableSpec must be: the members that its scaling uses in range, the others untouched.
#include <algorithm>
#include <cmath>

#include "base/message.h"
#include "models/rope_frequencies.h"

namespace qkvfuse {
namespace {

using Kind = RopeScaling::Kind;

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kLinear:
      return "linear";
    case Kind::kNtk:
      return "ntk";
    case Kind::kDynamicNtk:
      return "dynamic ntk";
    case Kind::kYarn:
      return "yarn";
    case Kind::kLlama3:
      return "llama3";
    case Kind::kLongRope:
      return "longrope";
  }
  return "unknown";
}

/// A member of RopeScaling, the kinds that use it, and whether it still is what it is by default.
struct Member {
  const char* name;
  std::initializer_list<Kind> users;
  bool is_default;
};

Status CheckUnusedMembers(const RopeScaling& s) {
  const RopeScaling d;
  const Member members[] = {
      {"factor",
       {Kind::kLinear, Kind::kNtk, Kind::kDynamicNtk, Kind::kYarn, Kind::kLlama3, Kind::kLongRope},
       s.factor == d.factor},
      {"original_max_positions",
       {Kind::kDynamicNtk, Kind::kYarn, Kind::kLlama3, Kind::kLongRope},
       s.original_max_positions == d.original_max_positions},
      {"sequence_length",
       {Kind::kDynamicNtk, Kind::kLongRope},
       s.sequence_length == d.sequence_length},
      {"beta_fast", {Kind::kYarn}, s.beta_fast == d.beta_fast},
      {"beta_slow", {Kind::kYarn}, s.beta_slow == d.beta_slow},
      {"truncate", {Kind::kYarn}, s.truncate == d.truncate},
      {"mscale", {Kind::kYarn}, s.mscale == d.mscale},
      {"mscale_all_dim", {Kind::kYarn}, s.mscale_all_dim == d.mscale_all_dim},
      {"attention_factor", {Kind::kYarn, Kind::kLongRope}, !s.attention_factor.has_value()},
      {"low_freq_factor", {Kind::kLlama3}, s.low_freq_factor == d.low_freq_factor},
      {"high_freq_factor", {Kind::kLlama3}, s.high_freq_factor == d.high_freq_factor},
      {"short_factor", {Kind::kLongRope}, s.short_factor.empty()},
      {"long_factor", {Kind::kLongRope}, s.long_factor.empty()},
  };
  for (const Member& member : members) {
    const bool is_used =
        std::find(member.users.begin(), member.users.end(), s.kind) != member.users.end();
    if (!is_used && !member.is_default) {
      return Invalid("scaling.", member.name, ": is set, must keep its default with scaling ",
                     Name(s.kind), ", which does not use it");
    }
  }
  return {};
}

/// `value` is finite and at least `least`, or more than that.
Status CheckNumber(const char* name, double value, double least, bool may_equal) {
  if (std::isfinite(value) && (value > least || (may_equal && value == least))) return {};
  return Invalid(name, ": is ", value, ", must be finite and ",
                 may_equal ? "at least " : "more than ", least);
}

Status CheckAtLeast(const char* name, int64_t value, int64_t least) {
  if (value >= least) return {};
  return Invalid(name, ": is ", value, ", must be at least ", least);
}

/// `low` and `high` are positive, and `low` is less, or may be equal.
Status CheckOrder(const char* low_name, double low, const char* high_name, double high,
                  bool may_equal) {
  if (Status status = CheckNumber(low_name, low, 0, false); !status.ok()) return status;
  if (Status status = CheckNumber(high_name, high, low, may_equal); !status.ok()) {
    return Invalid(status.message(), ", as ", low_name, " is");
  }
  return {};
}

Status CheckYarn(const RopeTableSpec& spec) {
  const RopeScaling& scaling = spec.scaling;
  if (Status status = CheckOrder("scaling.beta_slow", scaling.beta_slow, "scaling.beta_fast",
                                 scaling.beta_fast, true);
      !status.ok()) {
    return status;
  }
  for (const double mscale : {scaling.mscale, scaling.mscale_all_dim}) {
    if (!std::isfinite(mscale) || mscale < 0 || (mscale == 0) != (scaling.mscale == 0)) {
      return Invalid("scaling.mscale, scaling.mscale_all_dim: are ", scaling.mscale, " and ",
                     scaling.mscale_all_dim, ", must be finite and both more than 0, or both 0");
    }
  }
  const YarnRamp ramp = RampOf(spec);
  if (ramp.first > ramp.last) {
    return Invalid("scaling.original_max_positions: is ", scaling.original_max_positions,
                   ", which has yarn's ramp from pair ", ramp.first, " to ", ramp.last,
                   "; these must ascend");
  }
  return {};
}

Status CheckFactors(const char* name, const std::vector<double>& factors, int64_t rotary_dim) {
  if (static_cast<int64_t>(factors.size()) != rotary_dim / 2) {
    return Invalid(name, ": has ", factors.size(), " elements, must have ", rotary_dim / 2,
                   ", half of rotary_dim");
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    const std::string element = Concat(name, "[", i, "]");
    if (Status status = CheckNumber(element.c_str(), factors[i], 0, false); !status.ok()) {
      return status;
    }
  }
  return {};
}

Status CheckLongRope(const RopeTableSpec& spec) {
  const RopeScaling& scaling = spec.scaling;
  Status status = CheckFactors("scaling.short_factor", scaling.short_factor, spec.rotary_dim);
  if (!status.ok()) return status;
  return CheckFactors("scaling.long_factor", scaling.long_factor, spec.rotary_dim);
}

/// The members that several kinds share.
Status CheckCommonMembers(const RopeScaling& scaling) {
  const Kind kind = scaling.kind;
  const bool has_original = kind != Kind::kNone && kind != Kind::kLinear && kind != Kind::kNtk;
  const bool has_length = kind == Kind::kDynamicNtk || kind == Kind::kLongRope;
  Status status = CheckNumber("scaling.factor", scaling.factor, 1, true);
  if (status.ok() && has_original) {  // the logarithm of 1 is 0, which longrope divides by
    status = CheckAtLeast("scaling.original_max_positions", scaling.original_max_positions,
                          kind == Kind::kLongRope ? 2 : 1);
  }
  if (status.ok() && has_length) {
    status = CheckAtLeast("scaling.sequence_length", scaling.sequence_length, 1);
  }
  if (status.ok() && scaling.attention_factor) {
    status = CheckNumber("scaling.attention_factor", *scaling.attention_factor, 0, false);
  }
  return status;
}

Status CheckScaling(const RopeTableSpec& spec) {
  const RopeScaling& scaling = spec.scaling;
  Status status = CheckUnusedMembers(scaling);
  if (status.ok()) status = CheckCommonMembers(scaling);
  if (!status.ok()) return status;
  switch (scaling.kind) {
    case Kind::kNtk:
    case Kind::kDynamicNtk:
      if (spec.rotary_dim > 2) return {};
      return Invalid("rotary_dim: is 2, must be at least 4 with scaling ", Name(scaling.kind));
    case Kind::kYarn:
      return CheckYarn(spec);
    case Kind::kLlama3:
      return CheckOrder("scaling.low_freq_factor", scaling.low_freq_factor,
                        "scaling.high_freq_factor", scaling.high_freq_factor, false);
    case Kind::kLongRope:
      return CheckLongRope(spec);
    default:
      return {};
  }
}

}  // namespace

Status CheckRopeTable(const RopeTableSpec& spec) {
  if (spec.rotary_dim < 2 || spec.rotary_dim > kMostRotaryDim || spec.rotary_dim % 2 != 0) {
    return Invalid("rotary_dim: is ", spec.rotary_dim, ", must be even and from 2 to ",
                   kMostRotaryDim);
  }
  if (Status status = CheckNumber("theta", spec.theta, 1, false); !status.ok()) return status;
  if (spec.scaling.kind > Kind::kLongRope) {
    return Invalid("scaling.kind: is ", static_cast<int>(spec.scaling.kind),
                   ", must be one of RopeScaling::Kind");
  }
  return CheckScaling(spec);
}

}  // namespace qkvfuse
