// `strata pack MODEL OUT`: a model's experts written once in the form in which they are read best.
#include <iostream>

#include "cli/command.h"
#include "cli/daemon_set.h"
#include "common/base/status.h"
#include "common/pack/write_pack.h"
#include "common/quant/weight_layout.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(bool, overwrite, false, "pack: replace OUT if it is there.");
ABSL_FLAG(std::string, layout, "gguf",
          "pack: how rows of weights lie in OUT: 'gguf', as in the model, or 'rows8', eight "
          "interleaved where the CPU's kernels gain by it (x86 processors with AVX2).");

namespace strata::cli {

absl::Status Pack(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 2));
  if (arguments.size() != 2) {
    return absl::InvalidArgumentError(
        "usage: strata pack MODEL.gguf OUT.pack [--layout=gguf|rows8] [--overwrite]");
  }
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> model,
                          gguf::Model::Open(arguments[0]));
  pack::WriteOptions options;
  const std::string layout = absl::GetFlag(FLAGS_layout);
  if (layout == quant::NameOf(quant::WeightLayout::kRows8)) {
    options.layout = quant::WeightLayout::kRows8;
  } else if (layout != quant::NameOf(quant::WeightLayout::kGguf)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--layout=", layout, " is not one of: gguf, rows8"));
  }
  options.overwrite = absl::GetFlag(FLAGS_overwrite);
  options.progress = [](uint64_t written, uint64_t total) {
    std::cerr << absl::StreamFormat(
                     "\r%5.1f %% of %.2f GB",
                     100.0 * static_cast<double>(written) / static_cast<double>(total),
                     static_cast<double>(total) / 1e9)
              << std::flush;
  };
  const absl::StatusOr<pack::PackHeader> header = pack::WritePack(*model, arguments[1], options);
  std::cerr << "\n";
  if (!header.ok()) return header.status();
  std::cerr << "read experts from it with --set='expertstore { pack: \"" << arguments[1]
            << "\" }'\n";
  return absl::OkStatus();
}

}  // namespace strata::cli
