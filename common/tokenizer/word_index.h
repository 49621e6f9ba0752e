// Tokens by their bytes. Built once over a token table, then read by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

class WordIndex {
 public:
  WordIndex();

  // The bytes are borrowed and must stay valid. False: these bytes are already present.
  bool Insert(std::string_view bytes, uint32_t id);
  std::optional<uint32_t> Find(std::string_view bytes) const;

 private:
  struct Entry {
    const char* data = nullptr;
    uint32_t size = 0;
    uint32_t id = 0;
  };
  struct Slot {
    uint32_t tag = 0;        // upper half of the hash: tells most strangers apart without a look
    uint32_t entry = kNone;  // index into entries_
  };
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  size_t SlotOf(uint64_t hash, std::string_view bytes) const;
  void Grow();

  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace strata::tokenizer
