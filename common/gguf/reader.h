// A GGUF model, single or split, opened for reading.
//
//   STRATA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Open(path));
//   STRATA_ASSIGN_OR_RETURN(std::string_view arch,
//                           model->metadata().GetString("general.architecture"));
//   const TensorInfo* head = model->Find("output.weight");
//   std::span<const std::byte> weights = model->Data(*head);
//
// Opening maps the files and reads their headers only; tensor bytes are read by whoever touches
// them first. After Open, every tensor lies inside its file, aligned, and overlaps no other.
// All views (names, values, data) live as long as the Model. Immutable, hence thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/memory_map.h"
#include "common/base/status.h"
#include "common/gguf/metadata.h"
#include "common/gguf/tensor_info.h"

namespace strata::gguf {

class Model {
 public:
  // `path` names a model file, or any shard of a split one: the others are found beside it.
  // Errors say what the file is instead, which shards are missing, or by how much it is short.
  static absl::StatusOr<std::unique_ptr<Model>> Open(const std::string& path);

  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::vector<std::string>& files() const { return files_; }
  uint64_t total_file_bytes() const;
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }

  // Of the first shard, which describes the whole model.
  const Metadata& metadata() const { return metadata_; }

  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* Find(std::string_view name) const;  // nullptr if there is none
  // NotFound with the tensor's name: a complete file of another shape, not a short one.
  absl::StatusOr<const TensorInfo*> Get(std::string_view name) const;

  // `tensor` must be one of tensors().
  std::span<const std::byte> Data(const TensorInfo& tensor) const;

  // Equal for equal models: XXH3-128 (canonical byte order) over the metadata, all tensor infos,
  // and the first and last 4 KiB of each tensor. Reads those pages.
  std::array<std::byte, 16> Fingerprint() const;

  // FailedPrecondition if a file was replaced or written to since Open: mapped bytes then no longer
  // are what was checked.
  absl::Status CheckUnchanged() const;

 private:
  struct FileStamp {
    uint64_t device;
    uint64_t inode;
    uint64_t size;
    int64_t modified_ns;
    bool operator==(const FileStamp&) const = default;
  };

  Model() = default;
  static absl::StatusOr<FileStamp> Stamp(const std::string& path);
  absl::Status AddFile(const std::string& path);
  absl::Status AddShards(const std::string& prefix, uint32_t count);
  absl::Status IndexTensors();

  std::vector<std::string> files_;
  std::vector<MemoryMap> maps_;
  std::vector<FileStamp> stamps_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 0;
  Metadata metadata_;
  std::span<const std::byte> metadata_bytes_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
};

}  // namespace strata::gguf
