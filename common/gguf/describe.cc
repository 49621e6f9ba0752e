#include "common/gguf/describe.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/memory_info.h"
#include "common/gguf/expert_geometry.h"
#include "common/gguf/model_cost.h"
#include "common/gguf/printable.h"

#include "absl/strings/str_format.h"

namespace strata::gguf {
namespace {

constexpr size_t kShownBytes = 60;         // of a string
constexpr size_t kShownElements = 4;       // of an array
constexpr uint64_t kContextTokens = 8192;  // for which K/V memory is set aside in the advice
// Set aside for activations, page tables, libraries and the other daemons.
constexpr uint64_t kWorkingBytes = uint64_t{512} << 20;

std::string Bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? absl::StrFormat("%d B", bytes)
                   : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

std::string Count(uint64_t count) {
  const double value = static_cast<double>(count);
  if (value >= 1e9) return absl::StrFormat("%.2f billion", value / 1e9);
  if (value >= 1e6) return absl::StrFormat("%.2f million", value / 1e6);
  return absl::StrFormat("%d", count);
}

std::string Quoted(std::string_view text) {
  return absl::StrCat("\"", Printable(text, kShownBytes), "\"");
}

std::string ScalarText(const Value& value) {
  if (const auto text = value.AsString()) return Quoted(*text);
  if (const auto flag = value.AsBool()) return *flag ? "true" : "false";
  if (const auto number = value.AsUint()) return absl::StrCat(*number);
  if (const auto number = value.AsInt()) return absl::StrCat(*number);
  return absl::StrCat(value.AsFloat().value_or(0));
}

// The first elements as scalars of their own.
std::string ArrayText(const Value& value) {
  std::string out;
  const uint64_t shown = std::min<uint64_t>(value.size(), kShownElements);
  std::vector<std::string_view> texts;
  if (value.element_type() == ValueType::kString) {
    texts = value.AsStrings().value_or(std::vector<std::string_view>(value.size()));
  }
  const size_t stride = FixedSize(value.element_type());
  for (uint64_t i = 0; i < shown; ++i) {
    const std::string element =
        stride == 0 ? Quoted(texts[i])
                    : ScalarText(Value(value.element_type(), /*is_array=*/false, 1,
                                       value.payload().subspan(i * stride, stride)));
    absl::StrAppend(&out, i > 0 ? ", " : "", element);
  }
  if (shown < value.size()) out += ", ...";
  return absl::StrCat("[", out, "]");
}

void AppendHead(std::string& out, const Model& model) {
  const Metadata& metadata = model.metadata();
  absl::StrAppend(&out, "File         ", model.files().front(), " (",
                  Bytes(model.total_file_bytes()), ", GGUF version ", model.version());
  if (model.files().size() > 1) absl::StrAppend(&out, ", ", model.files().size(), " shards");
  absl::StrAppend(&out, ")\nModel        ",
                  Printable(metadata.GetString("general.name", "without a name").value_or("?")),
                  "\nArchitecture ",
                  Printable(metadata.GetString(kKeyArchitecture, "not stated").value_or("?")),
                  "\nFingerprint  ");
  for (const std::byte b : model.Fingerprint()) {
    absl::StrAppend(&out, absl::Hex(static_cast<int>(b), absl::kZeroPad2));
  }
  out += "\n";
}

void AppendMetadata(std::string& out, const Metadata& metadata) {
  absl::StrAppend(&out, "\nMetadata: ", metadata.size(), " keys\n");
  for (const Metadata::Entry& entry : metadata) {
    const Value& value = entry.value;
    const std::string type =
        value.is_array() ? absl::StrCat(A(NameOf(value.element_type())), "[", value.size(), "]")
                         : std::string(NameOf(value.type()));
    absl::StrAppendFormat(&out, "  %-46s %-15s %s\n", Printable(entry.key), type,
                          value.is_array() ? ArrayText(value) : ScalarText(value));
  }
}

void AppendEveryTensor(std::string& out, const Model& model) {
  for (const TensorInfo& tensor : model.tensors()) {
    std::string dims;
    for (uint32_t d = 0; d < tensor.n_dims; ++d) {
      absl::StrAppend(&dims, d > 0 ? " x " : "", tensor.dims[d]);
    }
    absl::StrAppendFormat(&out, "  %-46s %-8s %12s  %s\n", Printable(tensor.name),
                          std::string(NameOf(tensor.type)), Bytes(tensor.bytes), dims);
  }
}

void AppendTensorTypes(std::string& out, const Model& model) {
  struct Sum {
    uint64_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::map<TensorType, Sum> by_type;
  uint64_t total = 0;
  for (const TensorInfo& tensor : model.tensors()) {
    Sum& sum = by_type[tensor.type];
    ++sum.tensors;
    sum.bytes += tensor.bytes;
    total += tensor.bytes;
  }
  for (const auto& [type, sum] : by_type) {
    absl::StrAppendFormat(&out, "  %-8s %6d tensors %12s  %5.1f %%  (%.2f bits a value)\n",
                          std::string(NameOf(type)), sum.tensors, Bytes(sum.bytes),
                          100.0 * static_cast<double>(sum.bytes) / static_cast<double>(total),
                          InfoOf(type).bits_per_value());
  }
}

// Layers that differ in their number only are shown as one line.
bool Alike(const ExpertLayer& a, const ExpertLayer& b) {
  return a.experts == b.experts &&
         std::ranges::equal(a.parts, b.parts, [](const ExpertPart& x, const ExpertPart& y) {
           return x.type == y.type && x.bytes_per_expert == y.bytes_per_expert;
         });
}

std::string PartTypes(const ExpertLayer& layer) {
  static constexpr std::array<std::string_view, 3> kSeparate = {"gate", "up", "down"};
  static constexpr std::array<std::string_view, 2> kFused = {"gate+up", "down"};
  std::string out;
  for (size_t i = 0; i < layer.parts.size(); ++i) {
    absl::StrAppend(&out, i > 0 ? ", " : "",
                    A(layer.parts.size() == kSeparate.size() ? kSeparate[i] : kFused[i]), " ",
                    A(NameOf(layer.parts[i].type)));
  }
  return out;
}

void AppendExperts(std::string& out, const ExpertGeometry& geometry) {
  const std::vector<ExpertLayer>& layers = geometry.layers;
  if (layers.empty()) {
    out += "\nExperts: none, a dense model\n";
    return;
  }
  absl::StrAppend(&out, "\nExperts: ", layers.size(), " layers\n");
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end].layer == layers[end - 1].layer + 1 &&
           Alike(layers[i], layers[end])) {
      ++end;
    }
    const std::string range =
        end - i == 1 ? absl::StrCat("layer ", layers[i].layer)
                     : absl::StrCat("layers ", layers[i].layer, " to ", layers[end - 1].layer);
    absl::StrAppend(&out, "  ", range, ": ", layers[i].experts, " experts of ",
                    Bytes(layers[i].bytes_per_expert()), " (", PartTypes(layers[i]), ")\n");
    i = end;
  }
}

void AppendCost(std::string& out, const ModelCost& cost) {
  absl::StrAppend(&out, "\nParameters: ", Count(cost.parameters), ", ",
                  Count(cost.active_parameters), " active for a token\n");
  absl::StrAppend(&out, "Weights: dense ", Bytes(cost.dense_bytes), ", lookup tables ",
                  Bytes(cost.table_bytes), ", experts ", Bytes(cost.expert_bytes));
  if (cost.draft_bytes > 0) absl::StrAppend(&out, ", draft layers ", Bytes(cost.draft_bytes));
  absl::StrAppend(&out, "\nA token reads: dense ", Bytes(cost.dense_bytes));
  if (cost.used_experts > 0) {
    absl::StrAppend(&out, " + ", cost.used_experts, " experts a layer ",
                    Bytes(cost.expert_bytes_per_token));
  }
  absl::StrAppend(&out, " = ", Bytes(cost.bytes_per_token()));
  if (cost.kv_bytes_per_token) {
    absl::StrAppend(&out, ", and ", Bytes(*cost.kv_bytes_per_token),
                    " of K/V (F16) for each token before it");
  }
  out += "\n";
}

void AppendRow(std::string& out, std::string_view name, uint64_t bytes, std::string_view note) {
  absl::StrAppendFormat(&out, "  %-18s %12s  %s\n", std::string(name), Bytes(bytes),
                        std::string(note));
}

// Who would get which part of the memory, and what comes of it.
void AppendPlan(std::string& out, const ModelCost& cost, const ExpertGeometry& geometry,
                const DescribeOptions& options) {
  const MachineMemory& memory = options.memory;
  absl::StrAppend(&out, "This machine: ", Bytes(memory.available), " of ", Bytes(memory.total),
                  " RAM available. ");
  const uint64_t kv = cost.kv_bytes_per_token.value_or(0);
  const uint64_t context =
      kv > UINT64_MAX / 4 / kContextTokens ? UINT64_MAX / 4 : kv * kContextTokens;
  const uint64_t reserve = MemoryReserve(memory.total);
  // Tensor bytes lie in files, hence far below 2^62: these sums cannot overflow.
  const uint64_t dense = cost.dense_bytes + cost.draft_bytes;
  const uint64_t others = dense + context + kWorkingBytes + reserve;
  if (others > memory.available) {
    absl::StrAppend(&out, "Too little: the dense part alone needs ", Bytes(dense + kWorkingBytes),
                    ", ", kContextTokens, " tokens of K/V need ", Bytes(context), " and ",
                    Bytes(reserve),
                    " should stay free. Use a smaller model, a smaller quantisation or a shorter "
                    "context.\n");
    return;
  }
  const uint64_t rest = memory.available - others;
  const uint64_t experts = std::min(cost.expert_bytes, rest);
  const double share = cost.expert_bytes == 0
                           ? 1
                           : static_cast<double>(experts) / static_cast<double>(cost.expert_bytes);
  out += "Memory plan:\n";
  AppendRow(out, "dense weights", dense, "");
  AppendRow(out, "K/V", context, absl::StrCat("for ", kContextTokens, " tokens"));
  AppendRow(out, "buffers", kWorkingBytes, "activations, other daemons");
  AppendRow(out, "expert arena", experts, absl::StrCat("of ", Bytes(cost.expert_bytes)));
  AppendRow(out, "reserve", reserve, "kept free; the arena shrinks first");
  if (cost.expert_bytes == 0) {
    absl::StrAppend(&out, "The model fits, with ", Bytes(rest), " to spare.\n");
  } else if (cost.expert_bytes <= rest) {
    absl::StrAppend(&out, "All experts fit, with ", Bytes(rest - cost.expert_bytes),
                    " to spare.\n");
  } else {
    absl::StrAppendFormat(&out,
                          "%.0f %% of the experts fit (%s of %s); the others are read from the "
                          "drive when used.\n",
                          100 * share, Bytes(rest), Bytes(cost.expert_bytes));
  }
  if (memory.read_rate > 0) {
    absl::StrAppendFormat(
        &out, "Memory delivers %.1f GB/s here: %s at most %.1f tokens per second.\n",
        memory.read_rate / 1e9, share < 1 ? "with all experts in memory" : "that is",
        memory.read_rate / static_cast<double>(std::max<uint64_t>(1, cost.bytes_per_token())));
  }
  if (share < 1 && options.expected_speed) {
    absl::StrAppend(&out, options.expected_speed(cost, geometry, experts), "\n");
  }
}

}  // namespace

std::string Describe(const Model& model, const DescribeOptions& options) {
  std::string out;
  AppendHead(out, model);
  AppendMetadata(out, model.metadata());
  absl::StrAppend(&out, "\nTensors: ", model.tensors().size(), "\n");
  if (options.every_tensor) {
    AppendEveryTensor(out, model);
  } else {
    AppendTensorTypes(out, model);
  }
  const absl::StatusOr<ExpertGeometry> geometry = ReadExpertGeometry(model);
  if (!geometry.ok()) {
    absl::StrAppend(&out, "\nExperts: not usable: ", geometry.status().message(), "\n");
    return out;
  }
  AppendExperts(out, *geometry);
  const absl::StatusOr<ModelCost> cost = EstimateCost(model, *geometry);
  if (!cost.ok()) {
    absl::StrAppend(&out, "\nCost of a token: unknown: ", cost.status().message(), "\n");
    return out;
  }
  AppendCost(out, *cost);
  AppendPlan(out, *cost, *geometry, options);
  return out;
}

}  // namespace strata::gguf
