// The sentence of the latest refusal, per thread.
#include "capi/recent_error.h"

#include <algorithm>
#include <array>

#include "acl/acl_base.h"

namespace qkvfuse::capi {
namespace {

// A fixed buffer: recording an error must work when memory is what ran out.
struct Sentence {
  std::array<char, 1024> text{};
  bool is_set = false;
};
thread_local Sentence recent;

}  // namespace

int Fail(int code, std::string_view sentence) noexcept {
  const size_t length = std::min(sentence.size(), recent.text.size() - 1);
  std::copy_n(sentence.data(), length, recent.text.data());
  recent.text[length] = '\0';
  recent.is_set = true;
  return code;
}

const char* RecentError() noexcept { return recent.is_set ? recent.text.data() : nullptr; }

}  // namespace qkvfuse::capi

const char* aclGetRecentErrMsg() { return qkvfuse::capi::RecentError(); }
