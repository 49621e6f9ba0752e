// Writes the GGUF corpus into a folder, a file for each case: the start of libFuzzer's search.
// Usage: write_gguf_corpus FOLDER
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "tests/fuzz/gguf_corpus.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const strata::gguf::FieldMap valid;
  std::vector<strata::gguf::CorpusFile> files = valid.BreakEveryField();
  files.push_back({"valid", valid.bytes()});
  for (size_t i = 0; i < files.size(); ++i) {
    std::ofstream out(folder / std::to_string(i), std::ios::binary);
    out << files[i].bytes;
    if (!out) {
      fprintf(stderr, "cannot write into '%s'\n", argv[1]);
      return 1;
    }
  }
  return 0;
}
