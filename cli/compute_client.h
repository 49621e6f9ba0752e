// Blocking calls to a compute daemon. Free of gRPC headers.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "strata/v1/compute.pb.h"
#include "strata/v1/config.pb.h"

#include "absl/status/statusor.h"

namespace strata::cli {

class ComputeClient {
 public:
  // Waits up to two minutes until the daemon answers: it may be loading its model.
  static absl::StatusOr<ComputeClient> Connect(const std::string& address,
                                               const v1::TlsConfig& tls);
  ComputeClient(ComputeClient&&) noexcept;
  ~ComputeClient();

  // Tokens that one sequence may hold.
  uint32_t context_length() const;

  // Generation of exactly `max_tokens` tokens (no stop tokens), without any saved state; greedy
  // unless `sampling` says otherwise.
  absl::StatusOr<v1::Finish> Generate(std::span<const uint32_t> prompt, uint32_t max_tokens,
                                      const v1::SamplingParams& sampling = {});

 private:
  class Impl;
  explicit ComputeClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::cli
