#include "services/kvstore/segments/record_format.h"

#include <xxhash.h>

#include <cstring>

#include "services/kvstore/segments/aligned_buffer.h"

namespace strata::kvstore {
namespace {

constexpr uint32_t kMagic = 0x53764B53;  // "SKvS"
constexpr uint32_t kVersion = 1;

struct Layout {
  uint32_t magic;
  uint32_t version;
  uint32_t segment;
  uint32_t description_bytes;
  uint64_t offset;
  uint64_t data_bytes;
  uint8_t id[16];
  uint64_t data_checksum;
  uint64_t header_checksum;  // of all before and the description
};
static_assert(sizeof(Layout) == RecordHeader::kBytes);

uint64_t HeaderChecksum(const Layout& layout, std::string_view description) {
  const uint64_t own = XXH3_64bits(&layout, offsetof(Layout, header_checksum));
  return XXH3_64bits_withSeed(description.data(), description.size(), own);
}

}  // namespace

uint64_t Checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t RecordHeader::DataOffset() const { return AlignUp(kBytes + description_bytes); }

uint64_t RecordHeader::RecordBytes() const { return DataOffset() + AlignUp(data_bytes); }

void EncodeHeader(const RecordHeader& header, std::string_view description, char* out) {
  Layout layout{};
  layout.magic = kMagic;
  layout.version = kVersion;
  layout.segment = header.segment;
  layout.description_bytes = header.description_bytes;
  layout.offset = header.offset;
  layout.data_bytes = header.data_bytes;
  std::memcpy(layout.id, header.id.bytes.data(), sizeof(layout.id));
  layout.data_checksum = header.data_checksum;
  layout.header_checksum = HeaderChecksum(layout, description);
  std::memcpy(out, &layout, sizeof(layout));
}

std::optional<RecordHeader> DecodeHeader(std::string_view bytes, uint32_t segment,
                                         uint64_t offset) {
  Layout layout{};
  if (bytes.size() < sizeof(layout)) return std::nullopt;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (layout.magic != kMagic || layout.version != kVersion || layout.segment != segment ||
      layout.offset != offset || layout.description_bytes > RecordHeader::kMaxDescriptionBytes ||
      layout.data_bytes > RecordHeader::kMaxDataBytes) {
    return std::nullopt;
  }
  RecordHeader header{
      layout.segment,      layout.offset, layout.description_bytes, layout.data_bytes, {},
      layout.data_checksum};
  std::memcpy(header.id.bytes.data(), layout.id, sizeof(layout.id));
  return header;
}

bool HeaderIsIntact(const RecordHeader& header, std::string_view bytes) {
  Layout layout{};
  if (bytes.size() < sizeof(layout) + header.description_bytes) return false;
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  return layout.header_checksum ==
         HeaderChecksum(layout, bytes.substr(sizeof(layout), header.description_bytes));
}

}  // namespace strata::kvstore
