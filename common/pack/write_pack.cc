#include "common/pack/write_pack.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "common/base/unique_fd.h"
#include "common/quant/weight_layout.h"

namespace strata::pack {
namespace {

constexpr uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Written and not kept in the page cache: a pack is as large as the model.
constexpr uint64_t kSyncStep = 256 << 20;

// The temporary file: removed unless it was renamed.
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {}
  ~Temporary() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::string& path() const { return path_; }
  void Keep() { path_.clear(); }

 private:
  std::string path_;
};

absl::Status WriteAt(int fd, std::span<const std::byte> bytes, uint64_t offset,
                     const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return ErrnoStatus(errno, absl::StrCat("cannot write '", path, "'"));
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += static_cast<uint64_t>(wrote);
  }
  return absl::OkStatus();
}

absl::Status SyncAt(int fd, uint64_t offset, uint64_t bytes, const std::string& path) {
  if (fdatasync(fd) != 0) return ErrnoStatus(errno, absl::StrCat("cannot write '", path, "'"));
  posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
  return absl::OkStatus();
}

absl::Status CheckRoom(const std::filesystem::path& folder, uint64_t bytes) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot use folder '", folder.string(), "'"));
  }
  const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
  if (free >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the pack takes ", bytes, " bytes, but '",
                                                   folder.string(), "' has only ", free,
                                                   " free; name a file on another drive"));
}

quant::WeightLayout LayoutOf(const gguf::ExpertPart& part, quant::WeightLayout wanted) {
  using enum quant::WeightLayout;
  const uint64_t rows = part.row_bytes == 0 ? 0 : part.bytes_per_expert / part.row_bytes;
  // A multiple of eight for each half, if gate and up are one matrix.
  const bool can = quant::GainsFromRows8(part.type) && rows % (2 * quant::kInterleavedRows) == 0;
  return wanted == kRows8 && can ? kRows8 : kGguf;
}

absl::Status WriteExperts(const gguf::Model& model, const gguf::ExpertGeometry& geometry, int fd,
                          const std::string& path, const WriteOptions& options,
                          PackHeader* header) {
  std::vector<std::byte> expert;
  uint64_t synced = header->header_bytes;
  for (size_t l = 0; l < header->layers.size(); ++l) {
    PackLayer& layer = header->layers[l];
    std::vector<std::span<const std::byte>> tensors;
    for (const gguf::ExpertPart& part : geometry.layers[l].parts) {
      STRATA_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor, model.Get(part.tensor));
      tensors.push_back(model.Data(*tensor));
    }
    for (uint32_t e = 0; e < layer.experts; ++e) {
      expert.assign(layer.stride, std::byte{0});
      std::vector<std::span<const std::byte>> parts;
      for (size_t p = 0; p < layer.parts.size(); ++p) {
        const PackPart& part = layer.parts[p];
        const auto bytes = tensors[p].subspan(e * part.bytes, part.bytes);
        std::byte* to = expert.data() + part.start;
        if (part.layout == quant::WeightLayout::kRows8) {
          const gguf::ExpertPart& from = geometry.layers[l].parts[p];
          quant::InterleaveRows(from.type, static_cast<int64_t>(part.bytes / from.row_bytes),
                                from.row_bytes, bytes.data(), to);
        } else {
          std::copy(bytes.begin(), bytes.end(), to);
        }
        // Of the copy: that is what is written.
        parts.push_back(std::span(expert).subspan(part.start, part.bytes));
      }
      layer.checksums.push_back(Checksum(parts));
      const uint64_t at = layer.offset + e * layer.stride;
      STRATA_RETURN_IF_ERROR(WriteAt(fd, expert, at, path));
      if (const uint64_t end = at + layer.stride; end - synced >= kSyncStep) {
        STRATA_RETURN_IF_ERROR(SyncAt(fd, synced, end - synced, path));
        synced = end;
      }
    }
    if (options.progress) {
      options.progress(layer.offset + layer.experts * layer.stride, header->file_bytes);
    }
  }
  return model.CheckUnchanged();
}

}  // namespace

PackHeader LayOut(const gguf::ExpertGeometry& geometry, const Fingerprint& fingerprint,
                  quant::WeightLayout layout) {
  PackHeader header;
  header.fingerprint = fingerprint;
  uint64_t checksums = 0;
  for (const gguf::ExpertLayer& from : geometry.layers) {
    PackLayer layer;
    layer.layer = from.layer;
    layer.experts = from.experts;
    uint64_t end = 0;
    for (const gguf::ExpertPart& part : from.parts) {
      const uint64_t start = RoundUp(end, kPartAlign);
      layer.parts.push_back(
          {static_cast<uint32_t>(part.type), LayoutOf(part, layout), start, part.bytes_per_expert});
      end = start + part.bytes_per_expert;
    }
    layer.stride = RoundUp(end, kBlock);
    checksums += layer.experts;
    header.layers.push_back(std::move(layer));
  }
  header.header_bytes = RoundUp(Serialize(header).size() + 8 * checksums, kBlock);
  uint64_t at = header.header_bytes;
  for (PackLayer& layer : header.layers) {
    layer.offset = at;
    at += layer.experts * layer.stride;
  }
  header.file_bytes = at;
  return header;
}

absl::StatusOr<PackHeader> WritePack(const gguf::Model& model, const std::string& path,
                                     const WriteOptions& options) {
  STRATA_ASSIGN_OR_RETURN(const gguf::ExpertGeometry geometry, gguf::ReadExpertGeometry(model));
  if (geometry.layers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", model.files().front(), "' has no experts: there is nothing to pack"));
  }
  if (!options.overwrite && access(path.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", path, "' is there already; name another file or say --overwrite"));
  }
  PackHeader header = LayOut(geometry, model.Fingerprint(), options.layout);
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  STRATA_RETURN_IF_ERROR(CheckRoom(folder, header.file_bytes));

  Temporary temporary(absl::StrCat(path, ".", getpid(), ".part"));
  const UniqueFd fd(open(temporary.path().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return ErrnoStatus(errno, absl::StrCat("cannot create '", temporary.path(), "'"));
  }
  STRATA_RETURN_IF_ERROR(
      WriteExperts(model, geometry, fd.get(), temporary.path(), options, &header));
  STRATA_RETURN_IF_ERROR(WriteAt(fd.get(), Serialize(header), 0, temporary.path()));
  if (fsync(fd.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot write '", temporary.path(), "'"));
  }
  if (rename(temporary.path().c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot rename to '", path, "'"));
  }
  temporary.Keep();
  // The new name itself; where a folder cannot be synced, the next start merely finds no pack.
  const UniqueFd folder_fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_fd.valid()) fsync(folder_fd.get());
  return header;
}

}  // namespace strata::pack
