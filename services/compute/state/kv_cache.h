// Paged K/V memory of all sequences.
//
// A page holds kPageTokens consecutive tokens of one sequence in every layer, so one page number
// serves all layers. A page is also the unit of saving: a full page's bytes are one state block.
// Pages are reserved before a sequence starts (worst case), so a running sequence never fails for
// lack of memory.
//
// Sequences with a common beginning can use the same pages. A full page is published under the name
// of the block that it holds; who finds it by that name becomes one more user. A page that several
// use, or that can be found, is never written: who has to writes a copy (MakeOwn). When its last
// user gives a published page back, it stays until its memory is needed, the least recently used
// first: so a conversation that goes on finds its state in memory, and one that rested for long
// finds it in the store. Used by the step thread only.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/state/block_id.h"
#include "services/compute/ops/backend.h"
#include "services/compute/state/state_layout.h"

#include "absl/container/flat_hash_map.h"
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
  // Nobody uses them: the empty ones and the idle ones.
  int free_pages() const { return static_cast<int>(free_.size() + idle_.size()); }
  // Without users, but still to be found.
  int idle_pages() const { return static_cast<int>(idle_.size()); }
  // Pages that `tokens` tokens need.
  static int PagesFor(int64_t tokens) {
    return static_cast<int>((tokens + kPageTokens - 1) / kPageTokens);
  }

  // Takes `count` pages, appending their numbers to `table`; false (and nothing taken) if fewer are
  // free.
  bool Take(int count, std::vector<int32_t>& table);
  // One user less for each page of the table, which is empty then.
  void GiveBack(std::vector<int32_t>& table);

  // The page that holds this block, with one more user from now on: the caller, who gives it back.
  // The tokens are compared as well, a hash alone never decides.
  std::optional<int32_t> Share(const state::BlockId& id, std::span<const uint32_t> tokens);
  // The page at `table[index]` is complete and holds this block of kPageTokens tokens. If another
  // page holds it already, the table gets that one instead.
  void Publish(std::vector<int32_t>& table, size_t index, const state::BlockId& id,
               std::span<const uint32_t> tokens);
  // Before a row of `table[index]` is written: if others may read the page, the table gets a copy.
  // False if there is no free page for it.
  bool MakeOwn(std::vector<int32_t>& table, size_t index);
  // May be written.
  bool IsOwn(int32_t page) const {
    const Page& info = info_[static_cast<size_t>(page)];
    return info.users == 1 && !info.name;
  }

  // A page's bytes as a state block: for each layer all key rows, then all value rows. A checkpoint
  // has the same of fewer rows.
  uint64_t BlockBytes() const { return shape_.TokenBytes() * kPageTokens; }
  // The first rows of a page.
  void ReadRows(int32_t page, std::span<std::byte> checkpoint);
  void ReadPage(int32_t page, std::span<std::byte> block);
  void WritePage(int32_t page, std::span<const std::byte> block);
  // Puts rows [first_row, first_row + rows) of a block or checkpoint to the tokens from `position`
  // on of a sequence with these pages.
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
  void GiveBack(int32_t page);
  // An empty page, if need be one that was idle.
  int32_t TakeOne();

  struct Page {
    int users = 0;
    std::optional<state::BlockId> name;  // of a published page
    std::vector<uint32_t> tokens;        // the block's, for comparison
    std::list<int32_t>::iterator idle;   // its place there, if it has a name and no users
  };

  Backend& backend_;
  KvShape shape_;
  int pages_;
  std::unique_ptr<Buffer> memory_;  // [layer][k, v][page][token][width]
  std::vector<Page> info_;
  std::vector<int32_t> free_;
  std::list<int32_t> idle_;  // the next to be used otherwise comes first
  absl::flat_hash_map<state::BlockId, int32_t> by_name_;
};

}  // namespace strata::compute
