// What must hold for any bytes handed to the GGUF reader.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/gguf/reader.h"

namespace strata::gguf {

// A file in memory, with a path that Model::Open accepts while the object lives.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  std::string path() const;

 private:
  UniqueFd fd_;
};

// Uses everything a model offers: every value in every way, every tensor's bytes, geometry, cost
// and report. Returns what is inconsistent, or an empty string.
std::string FindInconsistency(const Model& model);

}  // namespace strata::gguf
