#include "common/policy/number_lists.h"

namespace strata::policy {

NumberLists::NumberLists(uint32_t numbers, uint32_t lists) : nodes_(numbers), ends_(lists) {}

void NumberLists::PushFront(uint32_t list, uint32_t number) {
  Ends& ends = ends_[list];
  nodes_[number] = {list, kNone, ends.front};
  if (ends.front == kNone) {
    ends.back = number;
  } else {
    nodes_[ends.front].before = number;
  }
  ends.front = number;
  ++ends.size;
}

void NumberLists::PushBack(uint32_t list, uint32_t number) {
  Ends& ends = ends_[list];
  nodes_[number] = {list, ends.back, kNone};
  if (ends.back == kNone) {
    ends.front = number;
  } else {
    nodes_[ends.back].after = number;
  }
  ends.back = number;
  ++ends.size;
}

void NumberLists::Remove(uint32_t number) {
  const Node node = nodes_[number];
  Ends& ends = ends_[node.list];
  if (node.before == kNone) {
    ends.front = node.after;
  } else {
    nodes_[node.before].after = node.after;
  }
  if (node.after == kNone) {
    ends.back = node.before;
  } else {
    nodes_[node.after].before = node.before;
  }
  --ends.size;
  nodes_[number] = {};
}

}  // namespace strata::policy
