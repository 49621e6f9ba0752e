// Paged K/V memory of all sequences.
//
// A page holds kPageTokens consecutive tokens of one sequence in every layer, so one page number
// serves all layers. A page is also the unit of saving: a full page's bytes are one state block.
// Pages are reserved before a sequence starts (worst case), so a running sequence never fails for
// lack of memory. Used by the step thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/compute/ops/backend.h"
#include "services/compute/state/state_layout.h"

#include "absl/status/statusor.h"

namespace strata::compute {

class KvCache {
 public:
  // 64 tokens: a small page wastes little memory at a sequence's end, and as a saved block it is
  // still megabytes for a large model (6.3 MB for 48 layers of 2 x 512 halves).
  static constexpr int kPageTokens = 64;

  // Allocates `pages` pages. ResourceExhausted names the bytes that were refused.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(Backend& backend, const KvShape& shape,
                                                         int pages);

  const KvShape& shape() const { return shape_; }
  KvPool Layer(int layer) const;

  int pages() const { return pages_; }
  int free_pages() const { return static_cast<int>(free_.size()); }
  // Pages that `tokens` tokens need.
  static int PagesFor(int64_t tokens) {
    return static_cast<int>((tokens + kPageTokens - 1) / kPageTokens);
  }

  // Takes `count` pages, appending their numbers to `table`; false (and nothing taken) if fewer are
  // free.
  bool Take(int count, std::vector<int32_t>& table);
  void GiveBack(std::vector<int32_t>& table);

  // A page's bytes as a state block: for each layer all key rows, then all value rows.
  uint64_t BlockBytes() const { return shape_.TokenBytes() * kPageTokens; }
  void ReadPage(int32_t page, std::span<std::byte> block);
  void WritePage(int32_t page, std::span<const std::byte> block);
  // Puts rows [first_row, first_row + rows) of a block to the tokens from `position` on of a
  // sequence with these pages.
  void WriteRows(std::span<const int32_t> pages, int position, std::span<const std::byte> block,
                 int first_row, int rows);
  // The keys of one token in one layer as floats [width].
  void ReadKey(int layer, int32_t slot, std::span<float> out);

 private:
  KvCache(Backend& backend, const KvShape& shape, int pages, std::unique_ptr<Buffer> memory);
  // Bytes of one page's keys (or values) in one layer.
  size_t PartBytes() const;
  size_t StoredRowBytes() const { return PartBytes() / kPageTokens; }
  std::byte* PartAddress(int layer, int part, int32_t page) const;

  Backend& backend_;
  KvShape shape_;
  int pages_;
  std::unique_ptr<Buffer> memory_;  // [layer][k, v][page][token][width]
  std::vector<int32_t> free_;
};

}  // namespace strata::compute
