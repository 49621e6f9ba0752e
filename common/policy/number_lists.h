// Doubly linked lists over the numbers 0..n-1, each in at most one list at a time. Constant time,
// no allocation after construction.
#pragma once

#include <cstdint>
#include <vector>

namespace strata::policy {

class NumberLists {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  NumberLists(uint32_t numbers, uint32_t lists);

  bool Contains(uint32_t number) const { return nodes_[number].list != kNone; }
  uint32_t ListOf(uint32_t number) const { return nodes_[number].list; }
  uint32_t size(uint32_t list) const { return ends_[list].size; }
  // kNone for an empty list.
  uint32_t front(uint32_t list) const { return ends_[list].front; }
  uint32_t back(uint32_t list) const { return ends_[list].back; }
  // Its neighbours; kNone at the end.
  uint32_t TowardsFront(uint32_t number) const { return nodes_[number].before; }
  uint32_t TowardsBack(uint32_t number) const { return nodes_[number].after; }

  // The number must be in no list.
  void PushFront(uint32_t list, uint32_t number);
  void PushBack(uint32_t list, uint32_t number);
  // The number must be in a list.
  void Remove(uint32_t number);

 private:
  struct Node {
    uint32_t list = kNone;
    uint32_t before = kNone;
    uint32_t after = kNone;
  };
  struct Ends {
    uint32_t front = kNone;
    uint32_t back = kNone;
    uint32_t size = 0;
  };
  std::vector<Node> nodes_;
  std::vector<Ends> ends_;
};

}  // namespace strata::policy
