#include "tests/fuzz/gguf_check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "common/gguf/describe.h"
#include "common/gguf/expert_geometry.h"
#include "common/gguf/model_cost.h"

namespace strata::gguf {
namespace {

// Decodes a value in all ways; returns a number that depends on the results, so that no read can be
// optimised away.
uint64_t UseValue(const Value& value) {
  uint64_t sum = value.size() + value.payload().size();
  sum += value.AsUint().value_or(0) + static_cast<uint64_t>(value.AsInt().value_or(0));
  sum += value.AsBool().value_or(false) + value.AsFloat().has_value();
  for (const char c : value.AsString().value_or("")) sum += static_cast<unsigned char>(c);
  if (const auto all = value.AsUints()) sum += all->size();
  if (const auto all = value.AsInts()) sum += all->size();
  if (const auto all = value.AsFloats()) sum += all->size();
  if (const auto all = value.AsBools()) sum += all->size();
  if (const auto all = value.AsStrings()) {
    for (const std::string_view text : *all) {
      for (const char c : text) sum += static_cast<unsigned char>(c);
    }
  }
  return sum;
}

std::string CheckTensor(const Model& model, const TensorInfo& tensor) {
  if (model.Find(tensor.name) != &tensor) return "a tensor is not found by its name";
  if (tensor.offset % model.alignment() != 0) return "a tensor is not aligned";
  const auto row = RowBytes(tensor.type, tensor.cols());
  if (!row || *row * tensor.rows() != tensor.bytes) return "a tensor's size is not its shape's";
  const std::span<const std::byte> data = model.Data(tensor);
  if (data.size() != tensor.bytes) return "a tensor's data have another size";
  volatile const std::byte first = data.front();  // volatile: these reads must happen
  volatile const std::byte last = data.back();
  (void)first;
  (void)last;
  return "";
}

std::string CheckNoOverlap(const Model& model) {
  std::vector<TensorInfo> order(model.tensors().begin(), model.tensors().end());
  std::ranges::sort(order, {}, &TensorInfo::offset);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1].offset + order[i - 1].bytes > order[i].offset) return "tensors overlap";
  }
  return "";
}

std::string CheckGeometry(const Model& model) {
  const auto geometry = ReadExpertGeometry(model);
  if (!geometry.ok()) return "";
  for (const ExpertLayer& layer : geometry->layers) {
    for (const ExpertPart& part : layer.parts) {
      const TensorInfo* tensor = model.Find(part.tensor);
      if (tensor == nullptr || part.bytes_per_expert * layer.experts != tensor->bytes) {
        return "experts do not fill their tensor";
      }
    }
  }
  const auto cost = EstimateCost(model, *geometry);
  if (!cost.ok()) return "";
  uint64_t total = 0;
  for (const TensorInfo& tensor : model.tensors()) total += tensor.bytes;
  if (cost->dense_bytes + cost->table_bytes + cost->expert_bytes + cost->draft_bytes != total) {
    return "the parts do not add up to the whole";
  }
  return "";
}

}  // namespace

MemoryFile::MemoryFile(std::string_view bytes) : fd_(memfd_create("gguf", MFD_CLOEXEC)) {
  if (!fd_.valid()) abort();
  while (!bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
    if (written <= 0) abort();
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

std::string FindInconsistency(const Model& model) {
  volatile uint64_t sum = 0;
  for (const Metadata::Entry& entry : model.metadata()) {
    if (model.metadata().Find(entry.key) != &entry.value) return "a key is not found";
    sum = sum + UseValue(entry.value);
  }
  for (const TensorInfo& tensor : model.tensors()) {
    if (std::string problem = CheckTensor(model, tensor); !problem.empty()) return problem;
  }
  if (std::string problem = CheckNoOverlap(model); !problem.empty()) return problem;
  if (std::string problem = CheckGeometry(model); !problem.empty()) return problem;
  const std::string report = Describe(model, {{1 << 30, 1 << 30}, /*every_tensor=*/true});
  if (report.find('\x1b') != std::string::npos) return "the report has control characters";
  return "";
}

}  // namespace strata::gguf
