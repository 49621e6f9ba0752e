// Tells what a file is when it is not a GGUF file: people save web pages, pointers and other
// formats under a .gguf name, and "bad magic" helps none of them.
#pragma once

#include <cstddef>
#include <span>

#include "common/base/status.h"

namespace strata::gguf {

// Ok if `bytes` start with GGUF's magic; otherwise an error that says what they look like.
absl::Status CheckIsGguf(std::span<const std::byte> bytes);

}  // namespace strata::gguf
