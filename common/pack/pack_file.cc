#include "common/pack/pack_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "common/base/checked.h"
#include "common/base/unique_fd.h"

namespace strata::pack {
namespace {

constexpr std::array<char, 8> kMagic = {'S', 'T', 'R', 'A', 'T', 'A', 'P', 'K'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kByteOrder = 0x01020304;
constexpr size_t kChecksumAt = 8 + 4 + 4 + 8 + 8 + 16 + 4 + 4;
constexpr size_t kFixedBytes = kChecksumAt + 8;

class Out {
 public:
  template <typename T>
  void Put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class In {
 public:
  explicit In(std::span<const std::byte> bytes) : bytes_(bytes) {}
  // False, and nothing is taken, when less than that is left.
  template <typename T>
  bool Take(T* value) {
    if (bytes_.size() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return true;
  }
  template <typename... T>
  bool TakeAll(T*... values) {
    return (Take(values) && ...);
  }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

uint64_t HeaderChecksum(std::span<const std::byte> header) {
  constexpr std::array<std::byte, 8> kZeros{};
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, header.data(), kChecksumAt);
  XXH3_64bits_update(&state, kZeros.data(), kZeros.size());
  XXH3_64bits_update(&state, header.data() + kFixedBytes, header.size() - kFixedBytes);
  return XXH3_64bits_digest(&state);
}

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrCat("the pack file's header is damaged: ", A(what),
                                          "; make it again with strata pack"));
}

absl::Status TakeLayer(In& in, PackLayer* layer) {
  uint32_t parts = 0;
  uint32_t zero = 0;
  if (!in.TakeAll(&layer->layer, &layer->experts, &parts, &zero, &layer->offset, &layer->stride)) {
    return Damaged("it ends inside a layer");
  }
  if (parts == 0 || parts > kMostParts || layer->experts == 0) {
    return Damaged("a layer without experts, or of impossible parts");
  }
  uint64_t end = 0;
  for (uint32_t p = 0; p < parts; ++p) {
    PackPart part;
    uint32_t layout = 0;
    if (!in.TakeAll(&part.type, &layout, &part.start, &part.bytes)) {
      return Damaged("it ends inside a part");
    }
    if (layout >= quant::kWeightLayouts) {
      return absl::UnimplementedError(
          absl::StrCat("the pack file holds weights in layout ", layout,
                       ", which this release does not know; make it again with strata pack"));
    }
    part.layout = static_cast<quant::WeightLayout>(layout);
    if (part.start % kPartAlign != 0 || part.start < end || part.bytes == 0) {
      return Damaged("a part's place in its expert");
    }
    const auto part_end = CheckedAdd(part.start, part.bytes);
    if (!part_end) return Damaged("a part's size");
    end = *part_end;
    layer->parts.push_back(part);
  }
  if (layer->stride % kBlock != 0 || layer->stride < end || layer->offset % kBlock != 0) {
    return Damaged("a layer's place in the file");
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t Checksum(std::span<const std::span<const std::byte>> parts) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const std::span<const std::byte> part : parts) {
    XXH3_64bits_update(&state, part.data(), part.size());
  }
  return XXH3_64bits_digest(&state);
}

std::vector<std::byte> Serialize(const PackHeader& header) {
  Out out;
  out.Put(kMagic);
  out.Put(kVersion);
  out.Put(kByteOrder);
  out.Put(header.header_bytes);
  out.Put(header.file_bytes);
  out.Put(header.fingerprint);
  out.Put(static_cast<uint32_t>(header.layers.size()));
  out.Put(uint32_t{0});
  out.Put(uint64_t{0});
  for (const PackLayer& layer : header.layers) {
    out.Put(layer.layer);
    out.Put(layer.experts);
    out.Put(static_cast<uint32_t>(layer.parts.size()));
    out.Put(uint32_t{0});
    out.Put(layer.offset);
    out.Put(layer.stride);
    for (const PackPart& part : layer.parts) {
      out.Put(part.type);
      out.Put(static_cast<uint32_t>(part.layout));
      out.Put(part.start);
      out.Put(part.bytes);
    }
  }
  for (const PackLayer& layer : header.layers) {
    for (const uint64_t checksum : layer.checksums) out.Put(checksum);
  }
  std::vector<std::byte> bytes = std::move(out.bytes());
  bytes.resize(std::max<uint64_t>(header.header_bytes, bytes.size()));
  const uint64_t checksum = HeaderChecksum(bytes);
  std::memcpy(bytes.data() + kChecksumAt, &checksum, sizeof(checksum));
  return bytes;
}

absl::StatusOr<PackHeader> ParseHeader(std::span<const std::byte> start, uint64_t file_bytes) {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t byte_order = 0;
  uint32_t layers = 0;
  uint32_t zero = 0;
  uint64_t checksum = 0;
  PackHeader header;
  In fixed(start);
  if (!fixed.Take(&magic) || magic != kMagic) {
    return absl::InvalidArgumentError("not a pack file (strata pack makes one)");
  }
  if (!fixed.TakeAll(&version, &byte_order, &header.header_bytes, &header.file_bytes,
                     &header.fingerprint, &layers, &zero, &checksum)) {
    return Damaged("the file ends inside it");
  }
  if (byte_order != kByteOrder) {
    return absl::FailedPreconditionError(
        "the pack file was made on a machine of another byte order; make it again here");
  }
  if (version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the pack file is of version ", version,
                                                      ", this release reads version ", kVersion,
                                                      "; make it again with strata pack"));
  }
  if (header.header_bytes % kBlock != 0 || header.header_bytes < kFixedBytes ||
      header.header_bytes > kMostHeaderBytes) {
    return Damaged("its own size");
  }
  if (header.file_bytes != file_bytes) {
    return absl::DataLossError(absl::StrCat("the pack file has ", file_bytes, " bytes instead of ",
                                            header.file_bytes,
                                            ": it was cut or is incomplete; make it again"));
  }
  if (start.size() < header.header_bytes) return Damaged("the file ends inside it");
  start = start.first(header.header_bytes);
  if (HeaderChecksum(start) != checksum) return Damaged("its checksum differs");

  In in(start.subspan(kFixedBytes));
  uint64_t end = header.header_bytes;
  uint64_t experts = 0;
  for (uint32_t l = 0; l < layers; ++l) {
    PackLayer layer;
    STRATA_RETURN_IF_ERROR(TakeLayer(in, &layer));
    if (!header.layers.empty() && layer.layer <= header.layers.back().layer) {
      return Damaged("its layers do not ascend");
    }
    const auto bytes = CheckedMul(layer.stride, layer.experts);
    const auto layer_end = bytes ? CheckedAdd(layer.offset, *bytes) : std::nullopt;
    if (layer.offset < end || !layer_end || *layer_end > file_bytes) {
      return Damaged("a layer leaves the file or overlaps another");
    }
    end = *layer_end;
    experts += layer.experts;
    // What is left holds a checksum for each expert, so this bounds what is allocated below.
    if (experts > in.left() / 8) return Damaged("more experts than checksums");
    header.layers.push_back(std::move(layer));
  }
  for (PackLayer& layer : header.layers) {
    layer.checksums.resize(layer.experts);
    for (uint64_t& value : layer.checksums) {
      if (!in.Take(&value)) return Damaged("it ends inside the checksums");
    }
  }
  return header;
}

absl::StatusOr<PackHeader> ReadHeader(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("cannot open '", path, "'"));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot stat '", path, "'"));
  }
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  // The fixed part says how long the header is; a lie there is found by ParseHeader.
  std::vector<std::byte> bytes(std::min<uint64_t>(file_bytes, kBlock));
  const auto read_up_to = [&](size_t from) -> absl::Status {
    for (size_t at = from; at < bytes.size();) {
      const ssize_t got =
          pread(fd.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoStatus(errno, absl::StrCat("cannot read '", path, "'"));
      if (got == 0) return absl::DataLossError(absl::StrCat("'", path, "' ends too early"));
      at += static_cast<size_t>(got);
    }
    return absl::OkStatus();
  };
  STRATA_RETURN_IF_ERROR(read_up_to(0));
  if (bytes.size() >= kFixedBytes) {
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data() + 16, sizeof(header_bytes));
    const size_t had = bytes.size();
    bytes.resize(std::max<uint64_t>(had, std::min({header_bytes, file_bytes, kMostHeaderBytes})));
    STRATA_RETURN_IF_ERROR(read_up_to(had));
  }
  absl::StatusOr<PackHeader> header = ParseHeader(bytes, file_bytes);
  if (!header.ok()) return Annotate(header.status(), absl::StrCat("'", path, "'"));
  return header;
}

}  // namespace strata::pack
