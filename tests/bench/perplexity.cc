// Perplexity of one model in every type, ours beside llama.cpp's on the same file.
//
//   perplexity [--model=FILE] [--text=FILE] [--chat] [--tokens=20000] [--types=q4_K,...]
//
// The model is decoded and quantised anew by llama.cpp for each type. Prints a table; what counts
// is the difference in percent and its standard error, which both shrink with the length of the
// text.
#include "tests/engine/perplexity.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "common/base/log.h"
#include "common/base/status.h"
#include "services/compute/cpu/test_tensors.h"
#include "tests/bench/bench_main.h"
#include "tests/bench/speed.h"
#include "tests/oracle/requantized_model.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, model, "deploy/demo/strata-demo.gguf", "Model to start from.");
ABSL_FLAG(std::string, text, "",
          "Text file; empty: the prose of the source tree (run in its root).");
ABSL_FLAG(uint32_t, tokens, 20'000, "Tokens of the text.");
ABSL_FLAG(uint32_t, piece, 1000, "Tokens read from an empty context at a time.");
ABSL_FLAG(int, threads, 2, "Threads of each engine; 1 is faster on a machine with other work.");
ABSL_FLAG(std::vector<std::string>, types, {}, "Types; empty: all.");
ABSL_FLAG(bool, chat, false, "The text holds special tokens, such as <|im_start|>.");
ABSL_FLAG(std::string, kv_type, "f16", "Keys and values of both engines: f16, f32, bf16, q8_0.");
ABSL_FLAG(std::string, isa, "auto", "Our kernels; 'scalar' does not round activations to int8.");

namespace strata::bench {
namespace {

absl::StatusOr<std::vector<TensorType>> Types() {
  std::vector<TensorType> types;
  for (const std::string& name : absl::GetFlag(FLAGS_types)) {
    const TensorTypeInfo* info = FindTensorType(std::string_view(name));
    if (info == nullptr) return absl::InvalidArgumentError("unknown type '" + name + "'");
    types.push_back(info->type);
  }
  if (!types.empty()) return types;
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    if (compute::testing::IsWeightType(info.type)) types.push_back(info.type);
  }
  return types;
}

absl::Status Main() {
  const oracle::LlamaLibrary* llama = oracle::LlamaLibrary::Get();
  if (llama == nullptr) return absl::NotFoundError(oracle::LlamaLibrary::WhyMissing());
  STRATA_ASSIGN_OR_RETURN(const std::vector<TensorType> types, Types());
  std::string text = compute::RepositoryText();
  if (const std::string path = absl::GetFlag(FLAGS_text); !path.empty()) {
    std::ifstream file(path);
    if (!file) return absl::NotFoundError("cannot read '" + path + "'");
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::string model = absl::GetFlag(FLAGS_model);
  STRATA_ASSIGN_OR_RETURN(
      const std::vector<uint32_t> tokens,
      compute::TextTokens(model, text, absl::GetFlag(FLAGS_tokens), absl::GetFlag(FLAGS_chat)));
  const std::string file = std::filesystem::temp_directory_path() /
                           absl::StrCat("strata-perplexity-", getpid(), ".gguf");
  std::cout << "| type | strata | llama.cpp | difference | standard error | same top |\n"
               "|---|---|---|---|---|---|\n";
  for (const TensorType type : types) {
    const Stopwatch quantising;
    STRATA_RETURN_IF_ERROR(oracle::WriteRequantizedModel(*llama, model, file, type));
    const double quantised = quantising.Seconds();
    const Stopwatch comparing;
    const auto a = compute::CompareOnText(file, tokens, absl::GetFlag(FLAGS_piece),
                                          absl::GetFlag(FLAGS_threads), absl::GetFlag(FLAGS_isa),
                                          absl::GetFlag(FLAGS_kv_type));
    std::filesystem::remove(file);
    STRATA_RETURN_IF_ERROR(a.status());
    std::cout << absl::StreamFormat("| %s | %.4f | %.4f | %+.3f %% | %.3f %% | %.2f %% |\n",
                                    A(NameOf(type)), a->OurPerplexity(), a->TheirPerplexity(),
                                    100 * (a->Ratio() - 1), 100 * a->StandardError(),
                                    100.0 * a->same_top / a->positions)
              << std::flush;
    LogInfo(A(NameOf(type)), ": quantised in ", quantised, " s, compared in ", comparing.Seconds(),
            " s");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) { return strata::bench::RunMain(argc, argv, strata::bench::Main); }
