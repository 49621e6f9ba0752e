// A string that knows which of its characters came from outside.
//
// The bytes are UTF-8 (Python's str, which Jinja is defined on, counts code points; utf8.h does the
// counting). Beside them stands a sorted list of byte ranges that were copied from request data.
// Every operation that builds a string from others goes through Append, so the ranges survive
// slicing, joining, replacing and filters, and the tokenizer can be told which characters may form
// control tokens: only those the template wrote itself.
//
// Not thread-safe while being built; a finished Text is shared read-only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace strata::gateway::jinja {

class Text {
 public:
  // Bytes [begin, end) are not trusted. Runs are sorted, disjoint and never touch.
  struct Run {
    size_t begin;
    size_t end;
    bool operator==(const Run&) const = default;
  };

  Text() = default;
  static Text Trusted(std::string bytes);
  static Text Untrusted(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  const std::vector<Run>& untrusted() const { return untrusted_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool UntrustedAt(size_t position) const;

  void Append(const Text& other) { Append(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, with their trust.
  void Append(const Text& other, size_t begin, size_t end);
  void AppendTrusted(std::string_view bytes) { bytes_.append(bytes); }
  void AppendUntrusted(std::string_view bytes);
  // `bytes` in the place of one character of `source`: it inherits that character's trust.
  void AppendAs(const Text& source, size_t position, std::string_view bytes);
  Text Sub(size_t begin, size_t end) const;

 private:
  void MarkTail(size_t begin);

  std::string bytes_;
  std::vector<Run> untrusted_;
};

}  // namespace strata::gateway::jinja
