#include "common/quant/quantize_model.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "common/gguf/reader.h"
#include "common/gguf/writer.h"
#include "common/quant/decode.h"
#include "common/quant/encode.h"
#include "common/quant/quantize_plan.h"

#include "absl/strings/str_cat.h"

namespace strata::quant {
namespace {

// Bytes of output converted between two writes: enough work for all threads, little memory.
constexpr uint64_t kChunkBytes = uint64_t{4} << 20;

// A run of rows to convert. Rows are independent, so any thread may take any of them.
struct Rows {
  TensorType from;
  TensorType to;
  uint64_t cols;
  uint64_t from_bytes;  // per row
  uint64_t to_bytes;
  const std::byte* in;
  std::byte* out;
  uint64_t first;  // number of the first row in its tensor, for messages
  uint64_t count;
};

// The error of the lowest row, so that the message does not depend on timing.
class FirstError {
 public:
  void Report(uint64_t row, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok() || row < row_) {
      row_ = row;
      status_ = status;
    }
  }
  absl::Status status() const {
    return status_.ok() ? status_ : Annotate(status_, absl::StrCat("row ", row_));
  }

 private:
  std::mutex mutex_;
  uint64_t row_ = 0;
  absl::Status status_;
};

absl::Status ConvertRows(const Rows& rows, int threads) {
  std::atomic<uint64_t> next = 0;
  FirstError error;
  const auto work = [&] {
    std::vector<float> values(rows.cols);
    const auto n = static_cast<int64_t>(rows.cols);
    for (uint64_t r; (r = next.fetch_add(1)) < rows.count;) {
      DecodeRow(rows.from, rows.in + r * rows.from_bytes, values.data(), n);
      const absl::Status status =
          EncodeRow(rows.to, values.data(), n, rows.out + r * rows.to_bytes);
      if (!status.ok()) error.Report(rows.first + r, status);
    }
  };
  {
    // A thread costs about what 10,000 weights do.
    const uint64_t useful = rows.count * rows.cols / 65536;
    std::vector<std::jthread> helpers;
    const uint64_t workers = std::min({static_cast<uint64_t>(threads), rows.count, useful + 1});
    for (uint64_t i = 1; i < workers; ++i) helpers.emplace_back(work);
    work();
  }
  return error.status();
}

absl::Status WriteConverted(const gguf::TensorInfo& tensor, std::span<const std::byte> data,
                            TensorType to, int threads, gguf::Writer* writer) {
  if (to == tensor.type) return writer->WriteTensor(tensor.name, data);
  Rows rows{};
  rows.from = tensor.type;
  rows.to = to;
  rows.cols = tensor.cols();
  rows.from_bytes = *RowBytes(rows.from, rows.cols);  // the reader and the plan checked the blocks
  rows.to_bytes = *RowBytes(rows.to, rows.cols);
  const uint64_t chunk = std::max<uint64_t>(1, kChunkBytes / rows.to_bytes);
  std::vector<std::byte> out(std::min(chunk, tensor.rows()) * rows.to_bytes);
  rows.out = out.data();
  for (; rows.first < tensor.rows(); rows.first += rows.count) {
    rows.count = std::min(chunk, tensor.rows() - rows.first);
    rows.in = data.data() + rows.first * rows.from_bytes;
    STRATA_RETURN_IF_ERROR(ConvertRows(rows, threads));
    STRATA_RETURN_IF_ERROR(
        writer->WriteTensor(tensor.name, std::span(out).first(rows.count * rows.to_bytes)));
  }
  return absl::OkStatus();
}

// All keys but those that describe the file itself.
void CopyMetadata(const gguf::Metadata& metadata, TensorType type, gguf::Writer* writer) {
  for (const gguf::Metadata::Entry& entry : metadata) {
    const bool about_file = entry.key == "general.alignment" || entry.key == "general.file_type" ||
                            entry.key == "general.quantization_version" ||
                            entry.key.starts_with("split.");
    if (!about_file) writer->Set(entry.key, entry.value);
  }
  writer->Set("general.file_type", FileTypeOf(type));
  writer->Set("general.quantization_version", uint32_t{2});
}

absl::Status CheckPaths(const gguf::Model& model, const std::string& out) {
  for (const std::string& file : model.files()) {
    std::error_code ignored;  // "does not exist" is fine
    if (std::filesystem::equivalent(file, out, ignored)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", out, "' is the model itself; choose another output file"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizeReport> QuantizeModel(const std::string& in, const std::string& out,
                                             const QuantizeOptions& options) {
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> model, gguf::Model::Open(in));
  STRATA_RETURN_IF_ERROR(CheckPaths(*model, out));
  STRATA_ASSIGN_OR_RETURN(const std::vector<PlannedTensor> plan,
                          PlanQuantization(model->tensors(), options));
  STRATA_ASSIGN_OR_RETURN(gguf::Writer writer, gguf::Writer::Create(out, model->alignment()));
  CopyMetadata(model->metadata(), options.type, &writer);
  for (size_t i = 0; i < plan.size(); ++i) {
    const gguf::TensorInfo& tensor = model->tensors()[i];
    writer.DeclareTensor(tensor.name, plan[i].type, std::span(tensor.dims).first(tensor.n_dims));
  }
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  QuantizeReport report;
  for (size_t i = 0; i < plan.size(); ++i) {
    const gguf::TensorInfo& tensor = model->tensors()[i];
    STRATA_RETURN_IF_ERROR(Annotate(
        WriteConverted(tensor, model->Data(tensor), plan[i].type, threads, &writer), tensor.name));
    QuantizedTensor done{std::string(tensor.name),
                         tensor.type,
                         plan[i].type,
                         tensor.bytes,
                         *RowBytes(plan[i].type, tensor.cols()) * tensor.rows(),
                         plan[i].note};
    report.bytes_before += done.bytes_before;
    report.bytes_after += done.bytes_after;
    if (options.on_tensor) options.on_tensor(done);
    report.tensors.push_back(std::move(done));
  }
  STRATA_RETURN_IF_ERROR(model->CheckUnchanged());
  STRATA_RETURN_IF_ERROR(writer.Finish());
  return report;
}

}  // namespace strata::quant
