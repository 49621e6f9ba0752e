// `strata quantize IN OUT`: a model with its matrices in another number format.
#include <iostream>

#include "cli/command.h"
#include "common/base/status.h"
#include "common/quant/quantize_model.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(std::string, type, "Q5_K", "quantize: type of the matrices.");
ABSL_FLAG(std::vector<std::string>, tensor, {},
          "quantize: exceptions, e.g. --tensor=token_embd=Q6_K,blk.*.ffn_down_exps=Q8_0.");

namespace strata::cli {

absl::Status Quantize(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 2));
  if (arguments.size() != 2) {
    return absl::InvalidArgumentError("usage: strata quantize IN.gguf OUT.gguf [--type=Q5_K]");
  }
  quant::QuantizeOptions options;
  const std::string type_name = absl::GetFlag(FLAGS_type);
  const TensorTypeInfo* type = FindTensorType(std::string_view(type_name));
  if (type == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--type: \"", type_name, "\" is not a tensor type"));
  }
  options.type = type->type;
  for (const std::string& text : absl::GetFlag(FLAGS_tensor)) {
    STRATA_ASSIGN_OR_RETURN(quant::TensorOverride exception, quant::ParseTensorOverride(text));
    options.overrides.push_back(std::move(exception));
  }
  options.on_tensor = [](const quant::QuantizedTensor& t) {
    std::cerr << absl::StreamFormat("%-40s %8s -> %-8s %12u bytes  %s\n", t.name, A(NameOf(t.from)),
                                    A(NameOf(t.to)), t.bytes_after, t.note);
  };
  STRATA_ASSIGN_OR_RETURN(const quant::QuantizeReport report,
                          quant::QuantizeModel(arguments[0], arguments[1], options));
  std::cerr << absl::StreamFormat("%u -> %u bytes\n", report.bytes_before, report.bytes_after);
  return absl::OkStatus();
}

}  // namespace strata::cli
