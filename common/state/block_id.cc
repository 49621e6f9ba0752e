#include "common/state/block_id.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace strata::state {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "ids hash integers as they lie in memory; they must mean the same on every machine");

// No tenant's name holds a control character.
constexpr std::string_view kApproximate = "\x1f~approximate";

BlockId FromHash(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  BlockId id;
  std::memcpy(id.bytes.data(), canonical.digest, sizeof(canonical.digest));
  return id;
}

// Length first, so that no two different lists of fields hash the same bytes.
void AppendField(std::string& buffer, std::string_view field) {
  const uint64_t size = field.size();
  buffer.append(reinterpret_cast<const char*>(&size), sizeof(size));
  buffer.append(field);
}

BlockId Marked(std::string_view mark, const BlockId& parent, Lineage lineage) {
  std::string buffer;
  AppendField(buffer, mark);
  AppendField(buffer, parent.ToString());
  buffer += static_cast<char>(lineage);
  return FromHash(XXH3_128bits(buffer.data(), buffer.size()));
}

}  // namespace

std::string BlockId::ToHex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t b : bytes) {
    hex += kDigits[b >> 4];
    hex += kDigits[b & 15];
  }
  return hex;
}

std::optional<BlockId> BlockIdFromRaw(std::string_view raw) {
  BlockId id;
  if (raw.size() != id.bytes.size()) return std::nullopt;
  std::copy(raw.begin(), raw.end(), id.bytes.begin());
  return id;
}

BlockId RootId(std::string_view fingerprint_hash, std::string_view layout_hash,
               std::string_view tenant) {
  std::string buffer;
  AppendField(buffer, "strata state v1");
  AppendField(buffer, fingerprint_hash);
  AppendField(buffer, layout_hash);
  AppendField(buffer, tenant);
  return FromHash(XXH3_128bits(buffer.data(), buffer.size()));
}

std::string ApproximateTenant(std::string_view tenant) {
  return std::string(tenant) += kApproximate;
}

bool IsApproximate(std::string_view tenant) { return tenant.ends_with(kApproximate); }

BlockId ChildId(const BlockId& parent, std::span<const uint32_t> tokens) {
  std::string buffer = parent.ToString();
  buffer.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  return FromHash(XXH3_128bits(buffer.data(), buffer.size()));
}

BlockId ChildId(const BlockId& parent, Lineage parent_lineage, Lineage lineage,
                std::span<const uint32_t> tokens) {
  if (lineage == parent_lineage) return ChildId(parent, tokens);
  return ChildId(Marked("spliced", parent, lineage), tokens);
}

BlockId CheckpointId(const BlockId& parent, Lineage lineage, std::span<const uint32_t> tokens) {
  return ChildId(Marked("checkpoint", parent, lineage), tokens);
}

}  // namespace strata::state
