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
    : backend_(backend),
      shape_(shape),
      pages_(pages),
      memory_(std::move(memory)),
      info_(static_cast<size_t>(pages)) {
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

int32_t KvCache::TakeOne() {
  int32_t page = -1;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else {
    page = idle_.front();
    idle_.pop_front();
    Page& info = info_[static_cast<size_t>(page)];
    by_name_.erase(*info.name);
    info.name.reset();
  }
  info_[static_cast<size_t>(page)].users = 1;
  return page;
}

bool KvCache::Take(int count, std::vector<int32_t>& table) {
  if (count > free_pages()) return false;
  for (int i = 0; i < count; ++i) table.push_back(TakeOne());
  return true;
}

void KvCache::GiveBack(int32_t page) {
  Page& info = info_[static_cast<size_t>(page)];
  assert(info.users > 0);
  if (--info.users > 0) return;
  if (info.name) {
    info.idle = idle_.insert(idle_.end(), page);
  } else {
    free_.push_back(page);
  }
}

void KvCache::GiveBack(std::vector<int32_t>& table) {
  // The last page first: without the pages before it a block cannot be found, so it has to go
  // earlier than they do.
  for (size_t i = table.size(); i > 0; --i) GiveBack(table[i - 1]);
  table.clear();
}

std::optional<int32_t> KvCache::Share(const state::BlockId& id, std::span<const uint32_t> tokens) {
  const auto it = by_name_.find(id);
  if (it == by_name_.end()) return std::nullopt;
  Page& info = info_[static_cast<size_t>(it->second)];
  if (!std::equal(tokens.begin(), tokens.end(), info.tokens.begin(), info.tokens.end())) {
    return std::nullopt;
  }
  if (info.users++ == 0) idle_.erase(info.idle);
  return it->second;
}

void KvCache::Publish(std::vector<int32_t>& table, size_t index, const state::BlockId& id,
                      std::span<const uint32_t> tokens) {
  const int32_t own = table[index];
  if (const std::optional<int32_t> known = Share(id, tokens)) {
    table[index] = *known;
    GiveBack(own);
    return;
  }
  Page& info = info_[static_cast<size_t>(own)];
  // A name that two texts share belongs to the first.
  if (info.name || !by_name_.try_emplace(id, own).second) return;
  info.name = id;
  info.tokens.assign(tokens.begin(), tokens.end());
}

bool KvCache::MakeOwn(std::vector<int32_t>& table, size_t index) {
  if (IsOwn(table[index])) return true;
  if (free_pages() == 0) return false;
  std::vector<std::byte> rows(BlockBytes());
  ReadPage(table[index], rows);
  const int32_t copy = TakeOne();
  WritePage(copy, rows);
  GiveBack(table[index]);
  table[index] = copy;
  return true;
}

void KvCache::ReadRows(int32_t page, std::span<std::byte> checkpoint) {
  assert(checkpoint.size() <= BlockBytes() && checkpoint.size() % shape_.TokenBytes() == 0);
  const size_t part_bytes = checkpoint.size() / static_cast<size_t>(2 * shape_.layers);
  for (int part = 0; part < 2 * shape_.layers; ++part) {
    backend_.CopyToHost(checkpoint.subspan(static_cast<size_t>(part) * part_bytes, part_bytes),
                        PartAddress(part / 2, part % 2, page));
  }
}

void KvCache::ReadPage(int32_t page, std::span<std::byte> block) {
  assert(block.size() == BlockBytes());
  ReadRows(page, block);
}

void KvCache::WritePage(int32_t page, std::span<const std::byte> block) {
  assert(block.size() == BlockBytes() && IsOwn(page));
  size_t at = 0;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    for (int part = 0; part < 2; ++part, at += PartBytes()) {
      backend_.CopyToDevice(PartAddress(layer, part, page), block.subspan(at, PartBytes()));
    }
  }
}

void KvCache::WriteRows(std::span<const int32_t> pages, int position,
                        std::span<const std::byte> block, int first_row, int rows) {
  const size_t row_bytes = StoredRowBytes();
  const size_t part_bytes = block.size() / static_cast<size_t>(2 * shape_.layers);
  assert(static_cast<size_t>(first_row + rows) * row_bytes <= part_bytes);
  while (rows > 0) {
    const int slot = position % kPageTokens;
    const int count = std::min(rows, kPageTokens - slot);
    const int32_t page = pages[static_cast<size_t>(position / kPageTokens)];
    for (int part = 0; part < 2 * shape_.layers; ++part) {
      const size_t from =
          static_cast<size_t>(part) * part_bytes + static_cast<size_t>(first_row) * row_bytes;
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
