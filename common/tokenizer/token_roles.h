// Roles that GGUF files leave unsaid. Converters write only some of the special ids, so programs
// find the others by the text of the token; the lists here are llama.cpp's, because files are made
// for it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/tokenizer/vocabulary.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace strata::tokenizer {

struct TokenRoles {
  const absl::flat_hash_map<absl::string_view, uint32_t>& by_text;
  std::vector<uint8_t>& flags;
  SpecialIds& ids;
  std::vector<uint32_t>& end_of_generation_ids;
};

// Fills in missing ids, makes tokens with such a role control tokens, and collects (sorted) the
// tokens that end a generation. Where llama.cpp takes any one of several candidates (its order is
// that of a hash map), the first in our list is taken.
void AssignRoles(TokenRoles& roles);

}  // namespace strata::tokenizer
