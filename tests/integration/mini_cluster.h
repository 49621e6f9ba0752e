// Four daemons under `strata run`, on a free port and private folders.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/unique_fd.h"

#include "absl/status/statusor.h"
#include "boost/json.hpp"

namespace strata::integration {

class MiniCluster {
 public:
  // `settings`: configuration text merged over the defaults. Waits until the gateway is healthy.
  // The state folder is `state_dir` if given (to start again on the same state), else a fresh one.
  static absl::StatusOr<std::unique_ptr<MiniCluster>> Start(std::string_view settings = "",
                                                            const std::string& state_dir = "");
  // Stops everything and removes the folders it made.
  ~MiniCluster();
  MiniCluster(const MiniCluster&) = delete;
  MiniCluster& operator=(const MiniCluster&) = delete;

  const std::string& address() const { return address_; }

  // Process of a daemon ("compute", "gateway", ...); -1 if it does not run at the moment.
  pid_t Pid(std::string_view daemon) const;
  // SIGKILL, then waits until `strata run` has started it again and the gateway is healthy.
  absl::Status KillAndAwaitRestart(std::string_view daemon);
  // SIGKILL only.
  absl::Status Kill(std::string_view daemon);
  absl::Status AwaitHealthy();
  // What the daemons and `strata run` have printed so far.
  std::string Log() const;

  struct Answer {
    int status = 0;
    std::string text;
    std::string finish_reason;
    std::string error;         // message of an error body or event
    boost::json::value usage;  // null if none came
    int events = 0;
  };
  // Streams /v1/chat/completions with one user message. `on_text` sees the answer so far after each
  // event; false closes the connection. `ignore_end`: go on to max_tokens.
  // All requests name a seed, and so the prompt is read in full, except if `splice` says off, safe
  // or fast, or "as configured": then there is neither seed nor mode in the request.
  absl::StatusOr<Answer> Chat(std::string_view message, int max_tokens,
                              const std::function<bool(const Answer&)>& on_text = nullptr,
                              double temperature = 0, bool ignore_end = false,
                              std::string_view splice = "") const;
  // Blocks of state that kvstore has, as the gateway last heard; -1 if it does not answer.
  int StoredBlocks() const;
  absl::StatusOr<boost::json::value> GetJson(const std::string& path) const;

 private:
  MiniCluster() = default;
  absl::Status Launch(std::string_view settings);

  std::string folder_;
  UniqueFd port_;
  std::string address_;
  std::string state_dir_;
  pid_t supervisor_ = -1;
};

}  // namespace strata::integration
