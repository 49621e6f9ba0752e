// Tokens to a tree of statements.
#pragma once

#include <string_view>

#include "services/gateway/template/ast.h"

#include "absl/status/statusor.h"

namespace strata::gateway::jinja {

// Nesting of expressions plus statements. Bounds the stack of the parser, of the interpreter per
// macro call and of the tree's destructor.
inline constexpr uint32_t kMaxTreeDepth = 150;

// Errors: InvalidArgument "line N: ...". Statements that reach outside the template (include,
// import, extends) do not exist here and are reported as unknown.
absl::StatusOr<Block> ParseTemplate(std::string_view source);

}  // namespace strata::gateway::jinja
