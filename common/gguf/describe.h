// A model file explained to a person: the text of `strata inspect FILE`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/gguf/expert_geometry.h"
#include "common/gguf/model_cost.h"
#include "common/gguf/reader.h"

namespace strata::gguf {

// Of the machine that would run the model, in bytes.
struct MachineMemory {
  uint64_t total = 0;
  uint64_t available = 0;  // without pushing other programs to swap
  double read_rate = 0;    // bytes a second that its memory delivers; 0: not known
};

struct DescribeOptions {
  MachineMemory memory;
  bool every_tensor = false;  // a line for each tensor instead of one for each type
  // What to expect, in a line, when only `arena_bytes` of the experts are in memory. Empty:
  // unknown.
  std::function<std::string(const ModelCost& cost, const ExpertGeometry& geometry,
                            uint64_t arena_bytes)>
      expected_speed = {};
};

// Several lines, ending in a newline: what the file is, its metadata (long values abbreviated), its
// tensors, where its experts lie, the bytes a token costs, and whether and how it fits the memory.
// Text from the file is escaped, so that it cannot drive the terminal.
std::string Describe(const Model& model, const DescribeOptions& options);

}  // namespace strata::gguf
