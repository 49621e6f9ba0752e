#include "common/config/config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/base/status.h"

namespace strata::config {
namespace {

// Keeps the first error of the text parser; the later ones are usually its consequences.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(std::string_view source) : source_(source) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!message_.empty()) return;
    // protobuf counts from zero and uses -1 for "the whole file".
    message_ = line < 0 ? absl::StrCat(source_, ": ", message)
                        : absl::StrCat(source_, ":", line + 1, ":", column + 1, ": ", message);
  }
  const std::string& message() const { return message_; }

 private:
  std::string source_;
  std::string message_;
};

std::string DirectoryFromEnvironment(const char* name, std::string_view fallback) {
  // systemd passes a colon-separated list; ours holds one entry.
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::string(value) : std::string(fallback);
}

void DefaultAddress(const v1::Config& config, std::string_view daemon, std::string* address) {
  if (address->empty()) {
    *address = absl::StrCat("unix:", config.runtime_dir(), "/", A(daemon), ".sock");
  }
}

absl::Status CheckOneOf(std::string_view field, const std::string& value,
                        std::initializer_list<std::string_view> allowed) {
  for (const std::string_view a : allowed) {
    if (value == a) return absl::OkStatus();
  }
  std::string list;
  for (const std::string_view a : allowed) absl::StrAppend(&list, list.empty() ? "" : ", ", A(a));
  return absl::InvalidArgumentError(
      absl::StrCat(A(field), ": \"", value, "\" is not one of: ", list));
}

}  // namespace

absl::Status MergeText(std::string_view text, std::string_view source, v1::Config& config) {
  FirstError errors(source);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  // Into a message of its own, so that a text with an error changes nothing.
  v1::Config parsed;
  if (!parser.MergeFromString(std::string(text), &parsed)) {
    return absl::InvalidArgumentError(errors.message().empty()
                                          ? absl::StrCat(A(source), ": not a Strata configuration")
                                          : errors.message());
  }
  config.MergeFrom(parsed);
  return absl::OkStatus();
}

absl::StatusOr<v1::Config> ReadFile(const std::string& path) {
  v1::Config config;
  if (path.empty()) return config;
  const std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the configuration '", path, "'; pass another one with --config"));
  }
  std::stringstream text;
  text << file.rdbuf();
  STRATA_RETURN_IF_ERROR(MergeText(text.str(), path, config));
  return config;
}

absl::Status FillDefaults(v1::Config& config) {
  if (config.runtime_dir().empty()) {
    config.set_runtime_dir(DirectoryFromEnvironment("RUNTIME_DIRECTORY", "/run/strata"));
  }
  if (config.state_dir().empty()) {
    config.set_state_dir(DirectoryFromEnvironment("STATE_DIRECTORY", "/var/lib/strata"));
  }

  v1::GatewayConfig& gateway = *config.mutable_gateway();
  if (gateway.listen().empty()) {
    gateway.add_listen("127.0.0.1:8080");
    gateway.add_listen("[::1]:8080");
  }
  if (gateway.max_body_bytes() == 0) gateway.set_max_body_bytes(64ull << 20);
  if (gateway.max_header_bytes() == 0) gateway.set_max_header_bytes(64u << 10);
  if (gateway.header_timeout_ms() == 0) gateway.set_header_timeout_ms(10'000);
  if (gateway.body_timeout_ms() == 0) gateway.set_body_timeout_ms(30'000);
  if (gateway.write_timeout_ms() == 0) gateway.set_write_timeout_ms(60'000);
  if (gateway.max_connections() == 0) gateway.set_max_connections(512);
  if (gateway.max_queue() == 0) gateway.set_max_queue(64);
  if (gateway.heartbeat_ms() == 0) gateway.set_heartbeat_ms(10'000);
  if (gateway.plan_timeout_ms() == 0) gateway.set_plan_timeout_ms(200);
  if (gateway.splice().empty()) gateway.set_splice("safe");

  v1::ComputeConfig& compute = *config.mutable_compute();
  if (compute.kv_type().empty()) compute.set_kv_type("f16");
  if (!compute.has_splice_budget()) compute.set_splice_budget(0.10f);
  if (compute.isa().empty()) compute.set_isa("auto");
  if (compute.max_sequences() == 0) compute.set_max_sequences(8);
  if (compute.spin_us() == 0) compute.set_spin_us(2000);
  if (compute.prompt_routing().empty()) compute.set_prompt_routing("auto");
  if (compute.prompt_routing_bound() == 0) compute.set_prompt_routing_bound(0.15F);
  if (compute.prompt_routing_budget() == 0) compute.set_prompt_routing_budget(0.10F);

  if (compute.look_ahead().empty()) compute.set_look_ahead("prompt");
  v1::DeviceTierConfig& device = *compute.mutable_device_tier();
  if (device.device().empty()) device.set_device("none");
  if (device.copy_gbs() == 0) device.set_copy_gbs(12);
  if (device.uploads_per_layer() == 0) device.set_uploads_per_layer(2);
  if (device.uploads_per_step() == 0) device.set_uploads_per_step(64);

  v1::ExpertStoreConfig& expertstore = *config.mutable_expertstore();
  if (expertstore.queue_depth() == 0) expertstore.set_queue_depth(32);
  if (expertstore.policy().empty()) expertstore.set_policy("auto");
  if (expertstore.layout().empty()) expertstore.set_layout("auto");
  if (expertstore.slice_bytes() == 0) expertstore.set_slice_bytes(512u << 10);

  v1::KvStoreConfig& kvstore = *config.mutable_kvstore();
  if (kvstore.path().empty()) kvstore.set_path(absl::StrCat(config.state_dir(), "/kv"));
  if (kvstore.budget_bytes() == 0) kvstore.set_budget_bytes(20ull << 30);
  if (kvstore.min_run_tokens() == 0) kvstore.set_min_run_tokens(64);

  DefaultAddress(config, "compute", compute.mutable_listen());
  DefaultAddress(config, "expertstore", expertstore.mutable_listen());
  DefaultAddress(config, "kvstore", kvstore.mutable_listen());
  if (compute.expertstore().empty()) compute.set_expertstore(expertstore.listen());
  if (compute.kvstore().empty()) compute.set_kvstore(kvstore.listen());
  if (gateway.compute().empty()) gateway.set_compute(compute.listen());
  if (gateway.kvstore().empty()) gateway.set_kvstore(kvstore.listen());
  if (gateway.expertstore().empty()) gateway.set_expertstore(expertstore.listen());

  STRATA_RETURN_IF_ERROR(CheckOneOf("gateway.splice", gateway.splice(), {"off", "safe", "fast"}));
  STRATA_RETURN_IF_ERROR(
      CheckOneOf("compute.kv_type", compute.kv_type(), {"f16", "f32", "bf16", "q8_0"}));
  STRATA_RETURN_IF_ERROR(
      CheckOneOf("expertstore.layout", expertstore.layout(), {"auto", "gguf", "rows8"}));
  STRATA_RETURN_IF_ERROR(
      CheckOneOf("compute.isa", compute.isa(),
                 {"auto", "scalar", "avx2", "avxvnni", "avx512", "avx512vbmi", "neon"}));
  STRATA_RETURN_IF_ERROR(CheckOneOf("compute.prompt_routing", compute.prompt_routing(),
                                    {"auto", "full", "guarded", "resident"}));
  if (!(compute.prompt_routing_bound() > 0 && compute.prompt_routing_bound() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("compute.prompt_routing_bound: ", compute.prompt_routing_bound(),
                     " is not a share above 0 and at most 1"));
  }
  if (!(compute.prompt_routing_budget() > 0 && compute.prompt_routing_budget() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("compute.prompt_routing_budget: ", compute.prompt_routing_budget(),
                     " is not a share above 0 and at most 1"));
  }
  STRATA_RETURN_IF_ERROR(
      CheckOneOf("compute.look_ahead", compute.look_ahead(), {"prompt", "always", "off"}));
  STRATA_RETURN_IF_ERROR(
      CheckOneOf("compute.device_tier.device", device.device(), {"none", "simulated"}));
  if (device.device() != "none" && device.bytes() == 0) {
    return absl::InvalidArgumentError(
        "compute.device_tier.bytes: 0; say how much device memory experts may take");
  }
  if (!(device.copy_gbs() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("compute.device_tier.copy_gbs: ", device.copy_gbs(), " is not a rate"));
  }
  STRATA_RETURN_IF_ERROR(
      CheckOneOf("expertstore.policy", expertstore.policy(), {"auto", "lru", "layer-lru", "lfu"}));
  if (expertstore.slice_bytes() % 4096 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expertstore.slice_bytes: ", expertstore.slice_bytes(), " is not a multiple of 4096"));
  }
  if (compute.chunk_tokens() > 65536) {
    return absl::InvalidArgumentError(
        absl::StrCat("compute.chunk_tokens: ", compute.chunk_tokens(), " is above 65536"));
  }
  return absl::OkStatus();
}

}  // namespace strata::config
