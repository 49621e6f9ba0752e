#include "common/gguf/expert_geometry.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>

#include "common/gguf/printable.h"

namespace strata::gguf {
namespace {

enum Part { kGate, kUp, kDown, kGateUp, kParts };
constexpr std::array<std::string_view, kParts> kPartNames = {
    "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight",
    "ffn_gate_up_exps.weight"};

struct LayerName {
  uint32_t layer;
  std::string_view suffix;
};

// Splits "blk.N.SUFFIX".
std::optional<LayerName> SplitName(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  if (name.front() == '0' && *(name.data() + 1) != '.')
    return std::nullopt;  // one spelling a layer
  name.remove_prefix(static_cast<size_t>(end - name.data()) + 1);
  return LayerName{layer, name};
}

std::optional<Part> PartOf(std::string_view suffix) {
  const auto it = std::find(kPartNames.begin(), kPartNames.end(), suffix);
  if (it == kPartNames.end()) return std::nullopt;
  return static_cast<Part>(it - kPartNames.begin());
}

using PartTensors = std::array<const TensorInfo*, kParts>;

ExpertPart MakePart(const TensorInfo& tensor) {
  const uint64_t experts = tensor.dims[2];  // a whole number of rows each, so this divides exactly
  return {tensor.name,
          tensor.type,
          tensor.file,
          tensor.offset,
          tensor.bytes / experts,
          tensor.values() / experts,
          *RowBytes(tensor.type, tensor.dims[0])};
}

absl::StatusOr<ExpertLayer> MakeLayer(uint32_t number, const PartTensors& tensors) {
  const auto invalid = [&](std::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("the experts of layer ", number, " ", A(why)));
  };
  const bool fused = tensors[kGateUp] != nullptr;
  const bool separate = tensors[kGate] != nullptr && tensors[kUp] != nullptr;
  if (tensors[kDown] == nullptr || fused == separate ||
      (fused && (tensors[kGate] != nullptr || tensors[kUp] != nullptr))) {
    return invalid("are neither gate + up + down nor gate_up + down");
  }
  const uint64_t gate_rows_per_ff = fused ? 2 : 1;
  const TensorInfo& first = fused ? *tensors[kGateUp] : *tensors[kGate];
  const TensorInfo& down = *tensors[kDown];
  const uint64_t experts = first.dims[2];
  if (experts > UINT32_MAX) return invalid("are impossibly many");

  ExpertLayer layer;
  layer.layer = number;
  layer.experts = static_cast<uint32_t>(experts);
  for (const Part part : {kGateUp, kGate, kUp, kDown}) {
    const TensorInfo* tensor = tensors[part];
    if (tensor == nullptr) continue;
    if (tensor->n_dims != 3 || tensor->dims[2] != experts) {
      return invalid(absl::StrCat("differ in number: '", Printable(tensor->name), "' is ",
                                  tensor->n_dims, "-dimensional with ", tensor->dims[2],
                                  " experts, expected 3 and ", experts));
    }
    if (part != kDown &&
        (tensor->dims[0] != down.dims[1] || tensor->dims[1] != gate_rows_per_ff * down.dims[0])) {
      return invalid(absl::StrCat("differ in shape: '", Printable(tensor->name),
                                  "' does not match '", Printable(down.name), "'"));
    }
    layer.parts.push_back(MakePart(*tensor));
  }
  return layer;
}

}  // namespace

uint64_t ExpertLayer::bytes_per_expert() const {
  uint64_t sum = 0;
  for (const ExpertPart& part : parts) sum += part.bytes_per_expert;
  return sum;
}

uint64_t ExpertLayer::values_per_expert() const {
  uint64_t sum = 0;
  for (const ExpertPart& part : parts) sum += part.values_per_expert;
  return sum;
}

uint64_t ExpertGeometry::total_bytes() const {
  uint64_t sum = 0;
  for (const ExpertLayer& layer : layers) sum += layer.experts * layer.bytes_per_expert();
  return sum;
}

int64_t LayerOf(std::string_view tensor_name) {
  const std::optional<LayerName> name = SplitName(tensor_name);
  return name ? int64_t{name->layer} : -1;
}

bool IsExpertTensor(std::string_view tensor_name) {
  const std::optional<LayerName> name = SplitName(tensor_name);
  return name && PartOf(name->suffix);
}

absl::StatusOr<ExpertGeometry> ReadExpertGeometry(const Model& model) {
  std::map<uint32_t, PartTensors> by_layer;
  for (const TensorInfo& tensor : model.tensors()) {
    const std::optional<LayerName> name = SplitName(tensor.name);
    if (!name) continue;
    const std::optional<Part> part = PartOf(name->suffix);
    if (!part) continue;
    by_layer[name->layer][*part] = &tensor;
  }
  ExpertGeometry geometry;
  geometry.files = model.files();
  for (const auto& [number, tensors] : by_layer) {
    STRATA_ASSIGN_OR_RETURN(ExpertLayer layer, MakeLayer(number, tensors));
    geometry.layers.push_back(std::move(layer));
  }
  return geometry;
}

}  // namespace strata::gguf
