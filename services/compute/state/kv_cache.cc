#include "services/compute/state/kv_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "common/base/checked.h"
#include "common/base/status.h"
#include "common/quant/decode.h"

namespace strata::compute {

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(Backend& backend, const KvShape& shape,
                                                         int pages) {
  const std::optional<uint64_t> bytes =
      CheckedMul(shape.TokenBytes() * kPageTokens, static_cast<uint64_t>(pages));
  if (!bytes) return absl::InvalidArgumentError(absl::StrCat(pages, " K/V pages overflow"));
  STRATA_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> memory, backend.Allocate(*bytes, "K/V cache"));
  return std::unique_ptr<KvCache>(new KvCache(backend, shape, pages, std::move(memory)));
}

KvCache::KvCache(Backend& backend, const KvShape& shape, int pages, std::unique_ptr<Buffer> memory)
    : backend_(backend), shape_(shape), pages_(pages), memory_(std::move(memory)) {
  free_.reserve(static_cast<size_t>(pages));
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

size_t KvCache::PartBytes() const {
  return static_cast<size_t>(*RowBytes(shape_.type, static_cast<uint64_t>(shape_.width()))) *
         kPageTokens;
}

std::byte* KvCache::PartAddress(int layer, int part, int32_t page) const {
  const size_t part_index = static_cast<size_t>(layer) * 2 + static_cast<size_t>(part);
  return memory_->data() +
         (part_index * static_cast<size_t>(pages_) + static_cast<size_t>(page)) * PartBytes();
}

KvPool KvCache::Layer(int layer) const {
  const auto pool = [&](int part) {
    const int64_t rows = static_cast<int64_t>(pages_) * kPageTokens;
    return Tensor{shape_.type, rows, shape_.width(), PartBytes() / kPageTokens,
                  PartAddress(layer, part, 0)};
  };
  return {pool(0), pool(1), kPageTokens, shape_.kv_heads, shape_.head_dim};
}

bool KvCache::Take(int count, std::vector<int32_t>& table) {
  if (count > free_pages()) return false;
  for (int i = 0; i < count; ++i) {
    table.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void KvCache::GiveBack(std::vector<int32_t>& table) {
  free_.insert(free_.end(), table.rbegin(), table.rend());
  table.clear();
}

void KvCache::ReadPage(int32_t page, std::span<std::byte> block) {
  assert(block.size() == BlockBytes());
  size_t at = 0;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (int part = 0; part < 2; ++part, at += PartBytes()) {
      backend_.CopyToHost(block.subspan(at, PartBytes()), PartAddress(layer, part, page));
    }
  }
}

void KvCache::WritePage(int32_t page, std::span<const std::byte> block) {
  assert(block.size() == BlockBytes());
  size_t at = 0;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (int part = 0; part < 2; ++part, at += PartBytes()) {
      backend_.CopyToDevice(PartAddress(layer, part, page), block.subspan(at, PartBytes()));
    }
  }
}

void KvCache::WriteRows(std::span<const int32_t> pages, int position,
                        std::span<const std::byte> block, int first_row, int rows) {
  assert(block.size() == BlockBytes() && first_row + rows <= kPageTokens);
  const size_t row_bytes = StoredRowBytes();
  while (rows > 0) {
    const int slot = position % kPageTokens;
    const int count = std::min(rows, kPageTokens - slot);
    const int32_t page = pages[static_cast<size_t>(position / kPageTokens)];
    for (int part = 0; part < 2 * shape_.layers; ++part) {
      const size_t from =
          static_cast<size_t>(part) * PartBytes() + static_cast<size_t>(first_row) * row_bytes;
      backend_.CopyToDevice(
          PartAddress(part / 2, part % 2, page) + static_cast<size_t>(slot) * row_bytes,
          block.subspan(from, static_cast<size_t>(count) * row_bytes));
    }
    position += count;
    first_row += count;
    rows -= count;
  }
}

void KvCache::ReadKey(int layer, int32_t slot, std::span<float> out) {
  std::vector<std::byte> stored(StoredRowBytes());
  backend_.CopyToHost(stored, PartAddress(layer, 0, slot / kPageTokens) +
                                  static_cast<size_t>(slot % kPageTokens) * stored.size());
  quant::DecodeRow(shape_.type, stored.data(), out.data(), shape_.width());
}

}  // namespace strata::compute
