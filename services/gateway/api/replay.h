// Tool-call replay: what an agent sends back of an answer is not what the model wrote. Clients
// parse a call's arguments and write them anew, with other spaces, another order of keys, other
// escapes; the template writes them a third way. The tokens differ, and stored state ends there,
// although nothing has changed.
//
// So the tokens of an answer that calls tools are kept under its first call's id. When a later
// request brings that call again and says the same, the prompt gets these tokens instead of what
// the template would make of it. Whatever does not fit is rendered as if nothing had been kept.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "services/gateway/engine/engine.h"
#include "services/gateway/model/model.h"

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace strata::gateway {

// One answer with tool calls, behind its reasoning.
struct Replay {
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;  // JSON
  };
  std::string content;
  std::vector<Call> calls;
  std::vector<uint32_t> tokens;
};

// Keeps replays in memory and, where there is a kvstore, beyond this process. Bounded in both: an
// old one is forgotten for a new one. Thread-safe.
class ReplayBook {
 public:
  static constexpr size_t kInMemory = 1024;
  static constexpr size_t kSlots = 8192;  // in kvstore
  static constexpr size_t kMostBytes = 256 << 10;

  // The engine must outlive this object.
  explicit ReplayBook(Engine* engine) : engine_(engine) {}

  // Does nothing for a replay without calls.
  void Put(const std::string& tenant, Replay replay);
  // Asks kvstore if it is not in memory; false waits for nobody.
  std::optional<Replay> Get(const std::string& tenant, const std::string& call_id,
                            bool ask_store = true);

 private:
  using Entry = std::pair<std::string, std::optional<Replay>>;
  void Keep(const std::string& key, std::optional<Replay> replay);

  Engine* const engine_;
  std::mutex mutex_;
  std::list<Entry> newest_first_;  // nothing: kvstore was asked and had none
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_;
};

// Whether a message of a client's history says what the answer said: the same content, the same
// calls with equal arguments.
bool SaysTheSame(const boost::json::object& message, const Replay& replay);

// Renders `variables` (see Model::Render) with replays where the history allows it. `book` may be
// null.
absl::StatusOr<std::vector<TextPart>> RenderWithReplays(const Model& model, ReplayBook* book,
                                                        const std::string& tenant,
                                                        const boost::json::object& variables);

}  // namespace strata::gateway
