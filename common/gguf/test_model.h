// Small model files for this folder's tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "common/base/test_folder.h"
#include "common/gguf/writer.h"

namespace strata::gguf {

inline std::string ReadFileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct TestTensor {
  std::string name;
  TensorType type;
  std::vector<uint64_t> dims;
};

// Declares `tensors`, fills each byte with the tensor's number, and finishes the file.
inline void WriteTensors(Writer& writer, const std::vector<TestTensor>& tensors) {
  for (const TestTensor& tensor : tensors) {
    writer.DeclareTensor(tensor.name, tensor.type, tensor.dims);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint64_t size = RowBytes(tensors[i].type, tensors[i].dims[0]).value();
    for (size_t d = 1; d < tensors[i].dims.size(); ++d) size *= tensors[i].dims[d];
    const std::vector<std::byte> bytes(size, static_cast<std::byte>(i));
    ASSERT_TRUE(writer.WriteTensor(tensors[i].name, bytes).ok());
  }
  const absl::Status status = writer.Finish();
  ASSERT_TRUE(status.ok()) << status;
}

}  // namespace strata::gguf
