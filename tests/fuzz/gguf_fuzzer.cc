// libFuzzer target: any bytes give an error or a consistent model.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/gguf/reader.h"
#include "tests/fuzz/gguf_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const strata::gguf::MemoryFile file({reinterpret_cast<const char*>(data), size});
  const auto model = strata::gguf::Model::Open(file.path());
  if (!model.ok()) return 0;
  const std::string problem = strata::gguf::FindInconsistency(**model);
  if (problem.empty()) return 0;
  fprintf(stderr, "%s\n", problem.c_str());
  abort();
}
