#include "services/gateway/template/text.h"

#include <algorithm>
#include <utility>

namespace strata::gateway::jinja {

Text Text::Trusted(std::string bytes) {
  Text text;
  text.bytes_ = std::move(bytes);
  return text;
}

Text Text::Untrusted(std::string bytes) {
  Text text;
  text.bytes_ = std::move(bytes);
  if (!text.bytes_.empty()) text.untrusted_.push_back({0, text.bytes_.size()});
  return text;
}

bool Text::UntrustedAt(size_t position) const {
  const auto after = std::upper_bound(untrusted_.begin(), untrusted_.end(), position,
                                      [](size_t p, const Run& run) { return p < run.end; });
  return after != untrusted_.end() && after->begin <= position;
}

void Text::MarkTail(size_t begin) {
  if (begin == bytes_.size()) return;
  if (!untrusted_.empty() && untrusted_.back().end == begin) {
    untrusted_.back().end = bytes_.size();
  } else {
    untrusted_.push_back({begin, bytes_.size()});
  }
}

void Text::AppendUntrusted(std::string_view bytes) {
  const size_t begin = bytes_.size();
  bytes_.append(bytes);
  MarkTail(begin);
}

void Text::AppendAs(const Text& source, size_t position, std::string_view bytes) {
  if (source.UntrustedAt(position)) {
    AppendUntrusted(bytes);
  } else {
    AppendTrusted(bytes);
  }
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  if (&other == this) {
    // The copy is the point: this call changes what `other` refers to.
    const Text copy = other;  // NOLINT(performance-unnecessary-copy-initialization)
    Append(copy, begin, end);
    return;
  }
  const size_t offset = bytes_.size();
  bytes_.append(other.bytes_, begin, end - begin);
  auto run = std::upper_bound(other.untrusted_.begin(), other.untrusted_.end(), begin,
                              [](size_t p, const Run& r) { return p < r.end; });
  for (; run != other.untrusted_.end() && run->begin < end; ++run) {
    const size_t from = std::max(run->begin, begin) - begin + offset;
    const size_t to = std::min(run->end, end) - begin + offset;
    if (!untrusted_.empty() && untrusted_.back().end == from) {
      untrusted_.back().end = to;
    } else {
      untrusted_.push_back({from, to});
    }
  }
}

Text Text::Sub(size_t begin, size_t end) const {
  Text part;
  part.Append(*this, begin, end);
  return part;
}

}  // namespace strata::gateway::jinja
