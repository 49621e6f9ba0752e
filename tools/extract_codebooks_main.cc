// extract_codebooks FILE: writes the codebooks of the i-quants (tools/README.md).
#include <cstdio>
#include <fstream>

#include "tests/oracle/llama_library.h"

#include "tools/extract_codebooks.h"

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::fprintf(stderr,
                 "usage: extract_codebooks FILE\n"
                 "Writes the i-quant codebooks (common/quant/codebooks.inc) as llama.cpp's library "
                 "decodes them.\nSTRATA_LLAMA_LIB_DIR names the folder of the library.\n");
    return 2;
  }
  const strata::oracle::LlamaLibrary* llama = strata::oracle::LlamaLibrary::Get();
  if (llama == nullptr) {
    std::fprintf(stderr, "%s\n", strata::oracle::LlamaLibrary::WhyMissing().c_str());
    return 1;
  }
  std::ofstream file(argv[1], std::ios::binary | std::ios::trunc);
  file << strata::tools::ExtractCodebooks(*llama);
  file.close();
  if (!file) {
    std::fprintf(stderr, "cannot write '%s'\n", argv[1]);
    return 1;
  }
  return 0;
}
