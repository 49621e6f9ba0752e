#include "common/gguf/reader.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/checked.h"
#include "common/gguf/format.h"
#include "common/gguf/parse.h"
#include "common/gguf/printable.h"
#include "common/gguf/split.h"

#include "absl/strings/str_join.h"

namespace strata::gguf {
namespace {

constexpr uint64_t kSampleBytes = 4096;

struct SplitKeys {
  uint64_t number = 0;  // counted from 0
  uint64_t count = 1;
};

absl::StatusOr<SplitKeys> ReadSplitKeys(const Metadata& metadata) {
  SplitKeys keys;
  STRATA_ASSIGN_OR_RETURN(keys.count, metadata.GetUint(kKeySplitCount, 1));
  STRATA_ASSIGN_OR_RETURN(keys.number, metadata.GetUint(kKeySplitNo, 0));
  if (keys.count > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("split.count is ", keys.count, ", more than the limit of ", kMaxShards));
  }
  if (keys.count > 1 && keys.number >= keys.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("split.no is ", keys.number, " but split.count is ", keys.count));
  }
  return keys;
}

// Shards joined with cat: where one file's data end, the next one's header begins.
bool HasSecondFile(std::span<const std::byte> bytes, const ParsedFile& parsed) {
  const auto magic_at = [&](std::optional<uint64_t> offset) {
    return offset && *offset <= bytes.size() && bytes.size() - *offset >= kMagic.size() &&
           std::memcmp(bytes.data() + *offset, kMagic.data(), kMagic.size()) == 0;
  };
  return magic_at(parsed.data_end) || magic_at(CheckedAlignUp(parsed.data_end, parsed.alignment));
}

absl::Status JoinedShardsError(uint64_t count) {
  return absl::InvalidArgumentError(absl::StrCat(
      "several GGUF files were joined into one (it starts with shard 1 of ", count,
      "). Shards of GGUF models cannot be joined with cat: keep the separate files and open any of "
      "them"));
}

absl::Status MissingShardsError(const ShardName& opened, const std::vector<std::string>& missing) {
  const std::string first = ShardPath(opened.prefix, 1, opened.count);
  const bool no_first = std::find(missing.begin(), missing.end(), first) != missing.end();
  return absl::NotFoundError(
      absl::StrCat(missing.size(), " of ", opened.count, " shards of this model are missing",
                   no_first ? ", among them shard 1, which holds the model's description" : "",
                   ":\n  ", absl::StrJoin(missing, "\n  ")));
}

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

  void Add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  template <typename T>
  void AddNumber(T value) {
    Add(std::as_bytes(std::span(&value, 1)));
  }
  std::array<std::byte, 16> Finish() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    std::array<std::byte, 16> out;
    static_assert(sizeof(canonical) == sizeof(out));
    std::memcpy(out.data(), &canonical, sizeof(out));
    return out;
  }

 private:
  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

}  // namespace

absl::StatusOr<Model::FileStamp> Model::Stamp(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot stat '", path, "'"));
  }
  return FileStamp{info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
                   info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec};
}

// Reads the header of `path` and appends its tensors. The first file's metadata become the model's.
absl::Status Model::AddFile(const std::string& path) {
  STRATA_ASSIGN_OR_RETURN(MemoryMap map, MemoryMap::ReadFile(path));
  STRATA_ASSIGN_OR_RETURN(const FileStamp stamp, Stamp(path));
  const auto describe = [&](const absl::Status& status) {
    return Annotate(status, absl::StrCat("cannot use '", path, "'"));
  };
  absl::StatusOr<ParsedFile> parsed = ParseFile(map.bytes(), static_cast<uint32_t>(files_.size()));
  if (!parsed.ok()) return describe(parsed.status());
  const absl::StatusOr<SplitKeys> split = ReadSplitKeys(parsed->metadata);
  if (!split.ok()) return describe(split.status());
  if (split->count > 1 && HasSecondFile(map.bytes(), *parsed)) {
    return describe(JoinedShardsError(split->count));
  }
  if (files_.empty()) {
    version_ = parsed->version;
    alignment_ = parsed->alignment;
    metadata_ = std::move(parsed->metadata);
    metadata_bytes_ = parsed->metadata_bytes;
  } else if (split->number != files_.size()) {
    return describe(absl::InvalidArgumentError(
        absl::StrCat("its name says shard ", files_.size() + 1, ", its split.no says shard ",
                     split->number + 1, "; were files renamed?")));
  }
  tensors_.insert(tensors_.end(), parsed->tensors.begin(), parsed->tensors.end());
  files_.push_back(path);
  maps_.push_back(std::move(map));
  stamps_.push_back(stamp);
  return absl::OkStatus();
}

// Files 2 to `count`; the first is open already.
absl::Status Model::AddShards(const std::string& prefix, uint32_t count) {
  for (uint32_t i = 2; i <= count; ++i) {
    STRATA_RETURN_IF_ERROR(AddFile(ShardPath(prefix, i, count)));
  }
  if (metadata_.Find(kKeySplitTensors) == nullptr) return absl::OkStatus();
  STRATA_ASSIGN_OR_RETURN(const uint64_t expected, metadata_.GetUint(kKeySplitTensors));
  if (expected != tensors_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ", count, " shards of '", prefix, "' hold ", tensors_.size(),
        " tensors, split.tensors.count says ", expected, "; they may belong to different models"));
  }
  return absl::OkStatus();
}

absl::Status Model::IndexTensors() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  const auto twin = std::adjacent_find(
      by_name_.begin(), by_name_.end(),
      [&](uint32_t a, uint32_t b) { return tensors_[a].name == tensors_[b].name; });
  if (twin == by_name_.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot use '", files_.front(), "': the tensor '",
                                                 Printable(tensors_[*twin].name),
                                                 "' occurs twice"));
}

absl::StatusOr<std::unique_ptr<Model>> Model::Open(const std::string& path) {
  std::unique_ptr<Model> model(new Model);  // the constructor is private
  STRATA_RETURN_IF_ERROR(model->AddFile(path));
  STRATA_ASSIGN_OR_RETURN(const SplitKeys split, ReadSplitKeys(model->metadata_));
  if (split.count > 1) {
    const std::optional<ShardName> name = ParseShardName(path);
    if (!name || name->count != split.count || name->number != split.number + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", path, "' is shard ", split.number + 1, " of ", split.count,
                       " of a split model but is not named so; rename it to NAME",
                       ShardPath("", static_cast<uint32_t>(split.number + 1),
                                 static_cast<uint32_t>(split.count)),
                       " and put the other shards beside it"));
    }
    const std::vector<std::string> missing = MissingShards(name->prefix, name->count);
    if (!missing.empty()) {
      return Annotate(MissingShardsError(*name, missing), absl::StrCat("cannot use '", path, "'"));
    }
    if (split.number != 0) {
      model.reset(new Model);
      STRATA_RETURN_IF_ERROR(model->AddFile(ShardPath(name->prefix, 1, name->count)));
      STRATA_ASSIGN_OR_RETURN(const SplitKeys first, ReadSplitKeys(model->metadata_));
      if (first.number != 0 || first.count != split.count) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", model->files_.front(), "' is not shard 1 of ", split.count,
                         ": its keys say shard ", first.number + 1, " of ", first.count));
      }
    }
    STRATA_RETURN_IF_ERROR(model->AddShards(name->prefix, name->count));
  }
  STRATA_RETURN_IF_ERROR(model->IndexTensors());
  return model;
}

uint64_t Model::total_file_bytes() const {
  uint64_t total = 0;
  for (const MemoryMap& map : maps_) total += map.size();
  return total;
}

const TensorInfo* Model::Find(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (it == by_name_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

absl::StatusOr<const TensorInfo*> Model::Get(std::string_view name) const {
  if (const TensorInfo* tensor = Find(name); tensor != nullptr) return tensor;
  return absl::NotFoundError(absl::StrCat("the model '", files_.front(), "' has no tensor '",
                                          A(name), "' (the file itself is complete)"));
}

std::span<const std::byte> Model::Data(const TensorInfo& tensor) const {
  return maps_[tensor.file].bytes().subspan(tensor.offset, tensor.bytes);
}

std::array<std::byte, 16> Model::Fingerprint() const {
  Hasher hasher;
  hasher.AddNumber<uint64_t>(metadata_bytes_.size());
  hasher.Add(metadata_bytes_);
  for (const TensorInfo& tensor : tensors_) {
    hasher.AddNumber<uint64_t>(tensor.name.size());
    hasher.Add(std::as_bytes(std::span(tensor.name)));
    hasher.AddNumber(static_cast<uint32_t>(tensor.type));
    for (const uint64_t dim : tensor.dims) hasher.AddNumber(dim);
    hasher.AddNumber(tensor.file);
    hasher.AddNumber(tensor.offset);
    const std::span<const std::byte> data = Data(tensor);
    if (data.size() <= 2 * kSampleBytes) {
      hasher.Add(data);
    } else {
      hasher.Add(data.first(kSampleBytes));
      hasher.Add(data.last(kSampleBytes));
    }
  }
  return hasher.Finish();
}

absl::Status Model::CheckUnchanged() const {
  for (size_t i = 0; i < files_.size(); ++i) {
    STRATA_ASSIGN_OR_RETURN(const FileStamp now, Stamp(files_[i]));
    if (now == stamps_[i]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the model file '", files_[i],
                     "' was changed or replaced while in use; restart to load the new one"));
  }
  return absl::OkStatus();
}

}  // namespace strata::gguf
