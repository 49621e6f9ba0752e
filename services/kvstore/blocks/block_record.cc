#include "services/kvstore/blocks/block_record.h"

#include <xxhash.h>

#include <cstring>

namespace strata::kvstore {
namespace {

constexpr uint8_t kVersion = 4;
constexpr uint8_t kBlocksOnly = 3;
constexpr uint8_t kInDatabase = 2;  // no use count, no extent

enum Flag : uint8_t { kPinned = 1, kReturned = 2, kSuperseded = 4 };
// In the same byte, since version 4: the kind, and `older`.
constexpr int kKindShift = 3;
constexpr uint8_t kKindMask = 3;
constexpr int kOlderShift = 5;
static_assert(kOldest << kOlderShift <= 0xFF);

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Takes a value off the front; false if there are too few bytes.
template <typename T>
bool Take(std::string_view& in, T& value) {
  if (in.size() < sizeof(T)) return false;
  std::memcpy(&value, in.data(), sizeof(T));
  in.remove_prefix(sizeof(T));
  return true;
}

}  // namespace

std::string EncodeRecord(const BlockRecord& record) {
  std::string out;
  Append(out, kVersion);
  out.append(record.parent.ToString());
  Append(out, record.first_token);
  Append(out, record.bytes);
  Append(out, record.checksum);
  Append(out, record.last_used_ms);
  Append(out, static_cast<uint8_t>(
                  (record.pinned ? kPinned : 0) | (record.returned ? kReturned : 0) |
                  (record.superseded ? kSuperseded : 0) |
                  static_cast<uint8_t>(record.kind) << kKindShift | record.older << kOlderShift));
  out.append(record.root.ToString());
  Append(out, static_cast<uint8_t>(record.lineage));
  Append(out, record.uses);
  Append(out, record.extent.segment);
  Append(out, record.extent.offset);
  Append(out, record.extent.bytes);
  Append(out, static_cast<uint32_t>(record.tokens.size()));
  out.append(reinterpret_cast<const char*>(record.tokens.data()),
             record.tokens.size() * sizeof(uint32_t));
  Append(out, static_cast<uint64_t>(XXH3_64bits(out.data(), out.size())));
  return out;
}

std::optional<BlockRecord> DecodeRecord(std::string_view bytes) {
  if (bytes.size() < sizeof(uint64_t)) return std::nullopt;
  const std::string_view body = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  std::string_view tail = bytes.substr(body.size());
  uint64_t checksum = 0;
  if (!Take(tail, checksum) || checksum != XXH3_64bits(body.data(), body.size())) {
    return std::nullopt;
  }
  std::string_view in = body;
  BlockRecord record;
  uint8_t version = 0;
  uint8_t flags = 0;
  uint8_t lineage = 0;
  uint32_t count = 0;
  if (!Take(in, version) ||
      (version != kVersion && version != kBlocksOnly && version != kInDatabase) ||
      !Take(in, record.parent.bytes) || !Take(in, record.first_token) || !Take(in, record.bytes) ||
      !Take(in, record.checksum) || !Take(in, record.last_used_ms) || !Take(in, flags) ||
      !Take(in, record.root.bytes) || !Take(in, lineage) ||
      lineage > static_cast<uint8_t>(state::Lineage::kFast) ||
      (version != kInDatabase &&
       (!Take(in, record.uses) || !Take(in, record.extent.segment) ||
        !Take(in, record.extent.offset) || !Take(in, record.extent.bytes))) ||
      !Take(in, count) || in.size() != count * sizeof(uint32_t)) {
    return std::nullopt;
  }
  record.pinned = (flags & kPinned) != 0;
  record.returned = (flags & kReturned) != 0;
  record.superseded = (flags & kSuperseded) != 0;
  record.lineage = static_cast<state::Lineage>(lineage);
  if (version == kVersion) {
    const int kind = flags >> kKindShift & kKindMask;
    if (kind > static_cast<int>(Kind::kCheckpoint)) return std::nullopt;
    record.kind = static_cast<Kind>(kind);
    record.older = flags >> kOlderShift;
  }
  record.tokens.resize(count);
  if (count > 0) std::memcpy(record.tokens.data(), in.data(), in.size());
  return record;
}

}  // namespace strata::kvstore
