// Where a function was called from, as std::source_location, which clang 14 (our clang-tidy) lacks.
#pragma once

namespace strata::simt {

struct SourcePlace {
  const char* file = "";
  int line = 0;
  const char* function = "";

  // As a default argument: the place of the call that left the argument out.
  static constexpr SourcePlace Current(const char* file = __builtin_FILE(),
                                       int line = __builtin_LINE(),
                                       const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
};

}  // namespace strata::simt
