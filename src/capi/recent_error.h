// The sentence that aclGetRecentErrMsg returns, and the wall that keeps exceptions inside.
#pragma once

#include <new>
#include <string_view>
#include <utility>

namespace qkvfuse::capi {

/// Records `sentence` for the calling thread (cut to 1023 characters) and returns `code`.
int Fail(int code, std::string_view sentence) noexcept;

/// The sentence of the calling thread's latest Fail; null before the first.
[[nodiscard]] const char* RecentError() noexcept;

/// Runs body, which returns a code; whatever it throws becomes `failure_code`.
template <typename Body>
[[nodiscard]] int Guarded(int failure_code, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return Fail(failure_code, "not enough memory");
  } catch (...) {
    return Fail(failure_code, "unexpected error inside the library");
  }
}

}  // namespace qkvfuse::capi
