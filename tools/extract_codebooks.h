// Reads the codebooks of the i-quants out of llama.cpp.
//
// A codebook is a constant of the format: index -> 4 or 8 small integers. It cannot be derived from
// anything in a file, but a decoder that knows it tells it: for every index we craft a block whose
// scale makes the factor exactly 1, let llama.cpp decode it, and read the entry off the result.
#pragma once

#include <string>

#include "tests/oracle/llama_library.h"

namespace strata::tools {

// The text of common/quant/codebooks.inc.
std::string ExtractCodebooks(const oracle::LlamaLibrary& llama);

}  // namespace strata::tools
