// The committed codebooks are what the tool reads out of llama.cpp now.
#include "tools/extract_codebooks.h"

#include <fstream>
#include <iterator>
#include <string>

#include "tests/oracle/llama_library.h"

#include "gtest/gtest.h"

namespace strata::tools {
namespace {

TEST(ExtractCodebooks, CommittedFileIsUpToDate) {
  const oracle::LlamaLibrary* llama = oracle::LlamaLibrary::Get();
  if (llama == nullptr) GTEST_SKIP() << oracle::LlamaLibrary::WhyMissing();
  std::ifstream file("common/quant/codebooks.inc", std::ios::binary);  // ctest runs in the root
  ASSERT_TRUE(file) << "run from the root of the repository";
  const std::string committed{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(committed == ExtractCodebooks(*llama))
      << "run: extract_codebooks common/quant/codebooks.inc";
}

}  // namespace
}  // namespace strata::tools
