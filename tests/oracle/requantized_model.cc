#include "tests/oracle/requantized_model.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "common/gguf/reader.h"
#include "common/gguf/writer.h"
#include "common/quant/decode.h"

namespace strata::oracle {
namespace {

std::vector<std::byte> Requantized(const LlamaLibrary& llama, const gguf::TensorInfo& tensor,
                                   std::span<const std::byte> data, TensorType type) {
  const uint64_t cols = tensor.cols();
  const uint64_t in_bytes = *RowBytes(tensor.type, cols);
  const uint64_t out_bytes = *RowBytes(type, cols);
  std::vector<std::byte> out(tensor.rows() * out_bytes);
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    std::vector<float> row(cols);
    for (uint64_t r; (r = next.fetch_add(1)) < tensor.rows();) {
      quant::DecodeRow(tensor.type, data.data() + r * in_bytes, row.data(),
                       static_cast<int64_t>(cols));
      const std::vector<std::byte> blocks =
          llama.Quantize(static_cast<uint32_t>(type), row.data(), static_cast<int64_t>(cols));
      std::memcpy(out.data() + r * out_bytes, blocks.data(), out_bytes);
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    helpers.emplace_back(work);
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  return out;
}

}  // namespace

absl::Status WriteRequantizedModel(const LlamaLibrary& llama, const std::string& in,
                                   const std::string& out, TensorType type,
                                   std::string_view prefix) {
  const auto stays = [&](const gguf::TensorInfo& tensor) {
    return tensor.type == TensorType::kF32 || !tensor.name.starts_with(prefix);
  };
  STRATA_ASSIGN_OR_RETURN(const auto model, gguf::Model::Open(in));
  STRATA_ASSIGN_OR_RETURN(gguf::Writer writer, gguf::Writer::Create(out));
  for (const gguf::Metadata::Entry& entry : model->metadata()) {
    if (entry.key != "general.alignment") writer.Set(entry.key, entry.value);
  }
  for (const gguf::TensorInfo& tensor : model->tensors()) {
    if (!stays(tensor) && !RowBytes(type, tensor.cols())) {
      return absl::InvalidArgumentError(absl::StrCat("'", A(tensor.name), "' has rows of ",
                                                     tensor.cols(), " values, which cannot be ",
                                                     A(NameOf(type))));
    }
    writer.DeclareTensor(tensor.name, stays(tensor) ? tensor.type : type,
                         std::span(tensor.dims).first(tensor.n_dims));
  }
  for (const gguf::TensorInfo& tensor : model->tensors()) {
    const std::span<const std::byte> data = model->Data(tensor);
    STRATA_RETURN_IF_ERROR(
        stays(tensor) ? writer.WriteTensor(tensor.name, data)
                      : writer.WriteTensor(tensor.name, Requantized(llama, tensor, data, type)));
  }
  return writer.Finish();
}

}  // namespace strata::oracle
