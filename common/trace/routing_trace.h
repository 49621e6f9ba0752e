// A file of what the router chose, step by step and layer by layer.
//
//   strata-routing-trace 1 <layers> <experts> <used>\n      (text; experts of a layer, used by a
//   token) records, each:
//     1 byte    'D' decoding, 'P' reading a prompt
//     varint    layer
//     varint    n = distinct experts, 1..experts
//     n times   varint  expert minus the one before it minus 1 (the first: expert itself):
//     ascending
//               varint  tokens that chose it, minus 1
//
// varint: seven bits a byte, lowest first, the top bit says that another byte follows. A step of
// decoding is one record a layer (one token, or one of every sequence that ran); a prompt chunk
// likewise. About two bytes for each expert of a token: Qwen3-30B writes 0.8 KB a token.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace strata::trace {

struct Use {
  uint32_t expert = 0;  // in the layer
  uint32_t tokens = 0;
  bool operator==(const Use&) const = default;
};

// What one step used in one layer.
struct Batch {
  bool prompt = false;
  uint32_t layer = 0;
  std::vector<Use> uses;  // ascending
  bool operator==(const Batch&) const = default;
};

struct RoutingTrace {
  uint32_t layers = 0;
  uint32_t experts = 0;
  uint32_t used = 0;
  std::vector<Batch> batches;
};

// InvalidArgument says what is wrong and at which byte. A file that was cut off while it was being
// written (its program died) is read up to its last whole record.
absl::StatusOr<RoutingTrace> Parse(std::string_view bytes);
absl::StatusOr<RoutingTrace> ReadFile(const std::string& path);

// One thread.
class Writer {
 public:
  // Replaces the file.
  static absl::StatusOr<std::unique_ptr<Writer>> Create(const std::string& path, uint32_t layers,
                                                        uint32_t experts, uint32_t used);
  // `uses` ascending, in the layer's experts, each with tokens.
  void Write(bool prompt, uint32_t layer, std::span<const Use> uses);

 private:
  explicit Writer(std::ofstream file) : file_(std::move(file)) {}
  std::ofstream file_;
  std::string record_;
};

}  // namespace strata::trace
