// libFuzzer target: any bytes give an error or a header whose experts lie inside the file. The
// checksum over the header is set right first, or nothing behind it would ever be reached.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "common/pack/pack_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using strata::pack::PackHeader;
  using strata::pack::PackLayer;
  if (size == 0) return 0;
  constexpr size_t kChecksumAt = 56;
  const uint64_t file_bytes = uint64_t{data[0]} << 12 | 4096;
  std::vector<std::byte> bytes(4096 * (1 + data[0] % 2));
  std::memcpy(bytes.data(), data, std::min(size, bytes.size()));
  constexpr uint32_t kFixed[2] = {1, 0x01020304};
  std::memcpy(bytes.data(), "STRATAPK", 8);
  std::memcpy(bytes.data() + 8, kFixed, 8);
  const uint64_t sizes[2] = {bytes.size(), file_bytes};
  std::memcpy(bytes.data() + 16, sizes, 16);
  std::memset(bytes.data() + kChecksumAt, 0, 8);
  const std::span<const std::byte> whole[] = {bytes};
  const uint64_t checksum = strata::pack::Checksum(whole);
  std::memcpy(bytes.data() + kChecksumAt, &checksum, 8);
  const absl::StatusOr<PackHeader> header = strata::pack::ParseHeader(bytes, file_bytes);
  if (!header.ok()) return 0;
  for (const PackLayer& layer : header->layers) {
    const uint64_t end = layer.offset + layer.stride * layer.experts;
    if (layer.offset < header->header_bytes || end < layer.offset || end > file_bytes) abort();
    if (layer.checksums.size() != layer.experts) abort();
    for (const auto& part : layer.parts) {
      if (part.start + part.bytes > layer.stride) abort();
    }
  }
  return 0;
}
